// SPDX-License-Identifier: Apache-2.0
#include "cli/command.hpp"
#include "cli/runtime_exec.hpp"
#include "cli/serve_options.hpp"

namespace preload::cli {

int run_serve(const Arguments& arguments) {
  parse_serve_options(arguments);
  exec_runtime(arguments);
}

}  // namespace preload::cli
