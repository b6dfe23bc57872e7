// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/topology.hpp"

namespace preload::run {

// What one process tells the others about its machine before anything is decided.
struct ProcessFacts {
  std::string host;               // name, for messages
  std::string boot_id;            // names of hosts are not always unique
  int local_hint = -1;            // the launcher's local rank, -1 when it gives none
  std::vector<std::string> gpus;  // UUIDs as this process sees them, in CUDA's order
  std::string no_gpus;            // why there are none
  friend bool operator==(const ProcessFacts&, const ProcessFacts&) = default;
};
std::string encode(const ProcessFacts& facts);
ProcessFacts decode_facts(const std::string& text);

struct DeviceChoice {
  std::string device;  // endpoint name: a UUID, or "host:<local rank>"
  int ordinal = 0;     // CUDA ordinal in the process that it is for
  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

// Whether the job uses CUDA: as asked, else when every rank has a GPU. Throws Error(kDevice) naming
// the ranks without one when CUDA is asked for or only some have one.
bool choose_cuda(std::optional<bool> asked, const std::vector<ProcessFacts>& processes,
                 const std::vector<RankPlace>& places);

// One GPU per rank. Where all ranks of a node see the same GPUs, local rank i takes the i-th; where
// the launcher gave each its own, each takes its first. Throws Error(kLauncher) naming ranks, GPU
// and the launcher's flags when two ranks meet on one, or a node has more ranks than GPUs.
std::vector<DeviceChoice> choose_devices(bool cuda, const std::vector<ProcessFacts>& processes,
                                         const std::vector<RankPlace>& places);

}  // namespace preload::run
