// SPDX-License-Identifier: Apache-2.0
#include "cli/tuning_options.hpp"

namespace preload::cli {

TuningOptions tuning_options(const ParsedOptions& options) {
  TuningOptions tuning;
  tuning.disabled = options.has("disable-autotune") || options.has("disable-flashinfer-autotune");
  tuning.budget_s = options.seconds("autotune-budget").value_or(tuning.budget_s);
  tuning.most_tokens = options.number("max-num-batched-tokens", 1).value_or(tuning.most_tokens);
  return tuning;
}

TuneOptions parse_tune_options(const std::vector<std::string>& arguments) {
  const ParsedOptions options("tune", arguments);
  TuneOptions tune;
  tune.serve.model = model_options(options);
  tune.serve.nccl_library = options.text("nccl-library").value_or("");
  tune.serve.tuning = tuning_options(options);
  tune.serve.log_level = log_level_option(options);
  tune.json = options.has("json");
  return tune;
}

}  // namespace preload::cli
