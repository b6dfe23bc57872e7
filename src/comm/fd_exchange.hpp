// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "base/fd.hpp"
#include "comm/mpi_session.hpp"

namespace preload {

// Who of this node gets this rank's descriptors, and whose it gets, by rank in the group. What one
// names as receiver names it as giver.
struct FdExchange {
  const std::vector<Fd>& mine;
  std::vector<int> receivers;
  std::vector<int> givers;
};

// Collective over the whole group; ranks that have nothing to exchange pass no names. Returns the
// givers' descriptors, in their order there. Throws Error(kLauncher) when a rank of this node
// cannot be reached, e.g. from another network namespace.
std::map<int, std::vector<Fd>> exchange_fds(Group& group, const FdExchange& exchange,
                                            const Wait& wait);

}  // namespace preload
