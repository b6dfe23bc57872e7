// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/serve_options.hpp"

namespace preload::cli {

// `preload bench load`: one rank's load, timed.
struct BenchLoadOptions {
  ModelOptions model;
  ParallelSizes sizes;
  int rank = 0;
  std::optional<bool> cuda;  // --device; unset: cuda where there is a GPU, else host
  std::uint64_t ring_bytes = 512 * kMiB;
  std::optional<ReadMethod> reader;  // --reader, unset = auto
  int threads = 0;                   // --reader-threads, 0 = by the CPUs at hand
  bool cold = false;
  int runs = 5;
  std::vector<std::string> peers;  // by the names of their Python modules
  bool json = false;
};

// Throws Error(kUsage) naming the flag, or the benches when none or an unknown one is asked for.
BenchLoadOptions parse_bench_options(const std::vector<std::string>& arguments);

}  // namespace preload::cli
