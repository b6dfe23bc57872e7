// SPDX-License-Identifier: Apache-2.0
#include "load/read_gate.hpp"

#include <algorithm>

namespace preload {

ReadsInFlight share_of_reads(std::optional<int> of_node, int ranks_on_node) noexcept {
  const auto share = [&](int reads) { return std::max(1, reads / std::max(1, ranks_on_node)); };
  if (of_node) return {share(*of_node), share(*of_node)};
  return {0, share(kNetworkReadsOfNode)};
}

int ReadGate::enter(int wanted) {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] { return inside_ < limit_; });
  const int taken = std::min(wanted, limit_ - inside_);
  inside_ += taken;
  most_ = std::max(most_, inside_);
  return taken;
}

void ReadGate::leave(int taken) {
  {
    const std::lock_guard lock(mutex_);
    inside_ -= taken;
  }
  left_.notify_all();
}

int ReadGate::most() const {
  const std::lock_guard lock(mutex_);
  return most_;
}

}  // namespace preload
