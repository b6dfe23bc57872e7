// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "comm/mpi_session.hpp"
#include "run/launch.hpp"

namespace preload::run {

// What one rank needs of the host's memory, and what it finds there before any rank takes its part.
struct HostNeed {
  int node = 0;
  std::string limited_by;       // "the machine", or a cgroup as its members see it
  std::uint64_t seen_from = 0;  // tells containers apart, which may call different cgroups the same
  std::uint64_t needed_bytes = 0;
  std::uint64_t available_bytes = 0;
  int allocations = 1;  // in which it takes them: a single one is checked when it is made
};

// Why ranks that draw on the same memory cannot have it together; nothing where they can.
std::optional<std::string> host_shortage(const std::vector<HostNeed>& ranks);

// Collective. Each allocation alone is checked when it is made; but its pages come with the first
// write, and until then all ranks of a node, and all roles of a rank, see the same memory as free.
// Throws Error(kMemory) on every rank; the job channel, which is up, makes them one.
void require_host_memory(Group& group, const Launch& launch, std::uint64_t needed_bytes,
                         int allocations, const Cancel& cancel);

}  // namespace preload::run
