// SPDX-License-Identifier: Apache-2.0
#include "run/adoption_sample.hpp"

#include <algorithm>

namespace preload::run {

std::vector<std::uint32_t> sample_tensors(const CopyProgram& program, const LoadPlan& plan,
                                          std::uint64_t bytes) {
  const std::vector<Placement>& places = plan.slabs.placements;
  std::vector<std::vector<std::uint32_t>> by_slab(plan.slabs.slabs.size());
  for (std::uint32_t t = 0; t < places.size(); ++t) {
    if (!program.tensors[t].alias && places[t].bytes > 0) by_slab[places[t].slab].push_back(t);
  }
  std::vector<std::uint32_t> chosen;
  for (std::vector<std::uint32_t>& tensors : by_slab) {
    if (tensors.empty()) continue;
    std::ranges::stable_sort(tensors, std::ranges::greater{},
                             [&](std::uint32_t t) { return places[t].bytes; });
    std::uint64_t left = bytes / by_slab.size();
    const std::size_t before = chosen.size();
    for (const std::uint32_t t : tensors) {
      if (places[t].bytes > left) continue;
      left -= places[t].bytes;
      chosen.push_back(t);
    }
    if (chosen.size() == before) chosen.push_back(tensors.back());
  }
  return chosen;
}

}  // namespace preload::run
