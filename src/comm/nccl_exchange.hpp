// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "comm/mpi_session.hpp"
#include "comm/rank_exchange.hpp"

namespace preload {

// Why NCCL cannot be used here: not built in, or its library cannot be opened; empty when it can.
std::string nccl_unavailable(const std::string& library);

// A communicator of ranks [first, first + count) of the group, for device memory. `rank` is this
// one's number among them.
struct NcclRanks {
  int first = 0;
  int count = 1;
};
// Collective over the whole group, though each rank names its own ranks. Throws Error(kLauncher)
// naming what NCCL says, or that it took longer than the wait allows.
std::unique_ptr<RankExchange> make_nccl_exchange(Group& group, const NcclRanks& ranks,
                                                 const std::string& library, const Wait& wait);

}  // namespace preload
