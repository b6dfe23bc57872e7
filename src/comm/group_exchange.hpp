// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/mpi_session.hpp"
#include "comm/rank_exchange.hpp"

namespace preload {

// Exchange of host memory through the group, which it does not own. The spread group's first rank
// is `first` in the group.
class GroupExchange final : public RankExchange {
 public:
  GroupExchange(Group& group, int first, const Wait& wait)
      : group_(group), first_(first), wait_(wait) {}
  void exchange(std::span<const Message> out, std::span<const Message> in, void* stream,
                const std::atomic<bool>& stop) override;
  void check() override {}
  void abort() noexcept override {}

 private:
  Group& group_;
  int first_;
  Wait wait_;
};

}  // namespace preload
