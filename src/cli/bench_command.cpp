// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_options.hpp"
#include "cli/command.hpp"
#include "cli/runtime_exec.hpp"

namespace preload::cli {

int run_bench(const Arguments& arguments) {
  parse_bench_options(arguments);
  Arguments all{"bench"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  exec_runtime(all);
}

}  // namespace preload::cli
