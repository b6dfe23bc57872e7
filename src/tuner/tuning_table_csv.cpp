// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tuner/tuning_table.hpp"

namespace preload::tuner {

std::string to_csv(const TuningTable& table) {
  // That plugin reads lines of at most 255 bytes, and takes those that begin with # for comments.
  std::string text = fmt::format(
      "# preload tune, NCCL {}, {}, margin {:g}\n"
      "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,"
      "regBuff\n",
      nccl_version_text(table.nccl_version), text_of(table.topology.world), table.margin);
  std::vector<Entry> sorted = table.entries;
  std::sort(sorted.begin(), sorted.end(), comes_before);
  for (const Entry& entry : sorted) {
    if (!entry.chosen) continue;
    const Timing& chosen = *entry.chosen;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", name(entry.collective), entry.min_bytes,
                        entry.max_bytes, name(chosen.candidate.algorithm),
                        name(chosen.candidate.protocol),
                        chosen.channels == 0 ? -1 : chosen.channels, entry.shape.nodes,
                        entry.shape.ranks, entry.pipelined_ops, entry.registered_buffers ? 1 : 0);
  }
  return text;
}

}  // namespace preload::tuner
