// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/cancel.hpp"
#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/serve_options.hpp"
#include "load/hash_files.hpp"
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

// Hashes of what the ranks of a job consume together, which is all that no rank leaves alone. Known
// ones are taken from the receipts, the others read and remembered.
std::vector<SourceHash> consumed_hashes(const Checkpoint& checkpoint, const CopyProgram& program) {
  std::vector<bool> wanted(checkpoint.tensors.size(), true);
  for (const LeftAlone& left : program.left_alone) wanted[left.source] = false;
  std::vector<SourceHash> hashes;
  std::vector<SourceHash> all = recall_hashes(checkpoint).value_or(std::vector<SourceHash>{});
  std::vector<bool> known(checkpoint.tensors.size(), false);
  for (const SourceHash& hash : all) {
    known[hash.source] = true;
    if (wanted[hash.source]) hashes.push_back(hash);
  }
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < checkpoint.tensors.size(); ++i) {
    if (wanted[i] && !known[i] && checkpoint.tensors[i].bytes > 0) missing.push_back(i);
  }
  if (missing.empty()) return hashes;
  const std::vector<SourceHash> read = hash_sources(checkpoint, missing, 0, Cancel());
  hashes.insert(hashes.end(), read.begin(), read.end());
  all.insert(all.end(), read.begin(), read.end());
  remember_hashes(checkpoint, all);
  return hashes;
}

}  // namespace

int run_key(const Arguments& arguments) {
  const ParsedOptions options("key", arguments);
  const ModelOptions model = named_model(options);
  const ParallelSizes sizes = own_sizes(model);
  const int rank = rank_option(options, sizes);
  const Checkpoint checkpoint = open_checkpoint(model.model, model.open);
  for (const std::string& warning : checkpoint.warnings) log::warn(warning);
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, model.hf_overrides);
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
