// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/serve_options.hpp"
#include "load/consumed_hashes.hpp"
#include "plan/key.hpp"

namespace preload::cli {
namespace {

ModelOptions named_model(const ParsedOptions& options) {
  ModelOptions model = model_options(options);
  if (!options.positional().empty()) {
    if (!model.model.empty()) {
      throw Error(Errc::kUsage, fmt::format("the model is given twice: {} and --model {}",
                                            options.positional().front(), model.model));
    }
    model.model = options.positional().front();
  }
  if (model.model.empty()) {
    throw Error(Errc::kUsage, "which model? preload key DIR, or --model DIR_OR_HF_ID");
  }
  return model;
}

}  // namespace

int run_key(const Arguments& arguments) {
  const ParsedOptions options("key", arguments);
  const ModelOptions model = named_model(options);
  const ParallelSizes sizes = own_sizes(model);
  const int rank = rank_option(options, sizes);
  const Checkpoint checkpoint = open_checkpoint(model.model, model.open);
  for (const std::string& warning : checkpoint.warnings) log::warn(warning);
  const ModelSpec spec = layout_spec(checkpoint, model.layout, model.hf_overrides);
  const RankCoords coords = coords_of(rank, sizes);
  const CopyProgram program = make_program(checkpoint, spec, model.layout, sizes, coords);
  const std::string id = checkpoint_id(checkpoint, consumed_hashes(checkpoint, program));
  const KeyFields fields = key_fields(spec, model.layout, program, sizes, coords, id);
  const std::string key = key_digest(fields);
  if (options.has("json")) {
    fmt::print("{}\n", nlohmann::json{{"key", key}, {"checkpoint", id}, {"fields", fields}}.dump());
    return 0;
  }
  fmt::print("key        {}\ncheckpoint {}\n", key, id);
  for (const auto& [name, value] : fields) {
    if (name != "checkpoint") fmt::print("  {:<14} {}\n", name, value);
  }
  return 0;
}

}  // namespace preload::cli
