// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/load_report.hpp"
#include "checkpoint/checkpoint.hpp"

namespace preload::bench {

struct PeerRequest {
  std::vector<std::string> names;
  bool cuda = false;
  int device = 0;  // CUDA ordinal
  int runs = 1;
  bool cold = false;
};
// Times other loaders on the checkpoint's files by `python -m preload.bench_peers`, with
// $PRELOAD_PYTHON, else python3. What cannot be measured is an entry with its reason.
std::vector<PeerFigures> measure_peers(const PeerRequest& request, const Checkpoint& checkpoint);

}  // namespace preload::bench
