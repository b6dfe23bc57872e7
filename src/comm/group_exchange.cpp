// SPDX-License-Identifier: Apache-2.0
#include "comm/group_exchange.hpp"

#include <vector>

namespace preload {

void GroupExchange::exchange(std::span<const Message> out, std::span<const Message> in,
                             void* /*stream*/, const std::atomic<bool>& stop) {
  const auto renamed = [&](std::span<const Message> messages) {
    std::vector<GroupMessage> result;
    for (const Message& message : messages) {
      result.push_back({first_ + static_cast<int>(message.rank), message.data, message.bytes});
    }
    return result;
  };
  Wait wait = wait_;
  wait.stop = &stop;
  group_.exchange(renamed(out), renamed(in), wait);
}

}  // namespace preload
