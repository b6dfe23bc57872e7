// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/options.hpp"
#include "cli/serve_options.hpp"

namespace preload::cli {

// Of the flags that serve and tune share.
TuningOptions tuning_options(const ParsedOptions& options);

// `preload tune` under a launcher: a job that measures and holds no weights. Alone it shows what
// was found before, of `serve.model` where it is given.
struct TuneOptions {
  ServeOptions serve;
  bool json = false;
};
TuneOptions parse_tune_options(const std::vector<std::string>& arguments);

}  // namespace preload::cli
