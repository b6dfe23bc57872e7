// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/bench_options.hpp"

namespace preload::bench {

// `preload bench load`: times loads of one rank's part beside the limit measured in the same run,
// verifies each, times the peers, and prints the figures on standard output. Throws Error.
void run_load_bench(const cli::BenchLoadOptions& options);

}  // namespace preload::bench
