// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/draft_options.hpp"
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

// One role's key, and what it is made of.
struct RoleKey {
  std::string key;
  std::string checkpoint;
  KeyFields fields;
};

class Keys {
 public:
  explicit Keys(const ModelOptions& model) : model_(model), checkpoint_(open(model)) {
    spec_ = layout_spec(checkpoint_, model.layout, model.hf_overrides);
  }

  RoleKey target(const ParallelSizes& sizes, const RankCoords& rank) const {
    return key_of(checkpoint_, spec_, model_.layout, sizes, rank);
  }

  // Nothing where no draft is held.
  std::optional<RoleKey> draft(const ParallelSizes& sizes, const RankCoords& rank) const {
    const std::optional<DraftModel> draft = open_draft(model_, checkpoint_, spec_);
    const std::optional<RankCoords> coords = draft_coords(rank, sizes);
    if (!draft || !coords) return std::nullopt;
    return key_of(draft->checkpoint, draft->spec, draft->options.layout,
                  draft_sizes(draft->options, sizes), *coords);
  }

 private:
  static Checkpoint open(const ModelOptions& model) {
    Checkpoint checkpoint = open_checkpoint(model.model, model.open);
    for (const std::string& warning : checkpoint.warnings) log::warn(warning);
    return checkpoint;
  }
  static RoleKey key_of(const Checkpoint& checkpoint, const ModelSpec& spec,
                        const LayoutRequest& layout, const ParallelSizes& sizes,
                        const RankCoords& rank) {
    const CopyProgram program = make_program(checkpoint, spec, layout, sizes, rank);
    RoleKey out;
    out.checkpoint = checkpoint_id(checkpoint, consumed_hashes(checkpoint, program));
    out.fields = key_fields(spec, layout, program, sizes, rank, out.checkpoint);
    out.key = key_digest(out.fields);
    return out;
  }

  const ModelOptions& model_;
  const Checkpoint checkpoint_;
  ModelSpec spec_;
};

nlohmann::json to_json(const RoleKey& key) {
  return {{"key", key.key}, {"checkpoint", key.checkpoint}, {"fields", key.fields}};
}

void print(const RoleKey& key) {
  fmt::print("key        {}\ncheckpoint {}\n", key.key, key.checkpoint);
  for (const auto& [name, value] : key.fields) {
    if (name != "checkpoint") fmt::print("  {:<14} {}\n", name, one_line(value));
  }
}

}  // namespace

int run_key(const Arguments& arguments) {
  const ParsedOptions options("key", arguments);
  const ModelOptions model = named_model(options);
  const bool of_draft = options.choice("role", {"target", "draft"}).value_or(0) == 1;
  if (of_draft && !model.speculative) {
    throw Error(Errc::kUsage, "--role draft: of which draft? --speculative-config says");
  }
  const ParallelSizes sizes = own_sizes(model);
  int global = rank_option(options, sizes);
  // A draft is the same whatever the target's stages: any rank of the last one.
  if (of_draft && !options.has("rank")) global = (sizes.pp - 1) * sizes.tp;
  const RankCoords rank = coords_of(global, sizes);
  const Keys keys(model);
  const std::optional<RoleKey> key =
      of_draft ? keys.draft(sizes, rank) : std::optional(keys.target(sizes, rank));
  if (!key) {
    throw Error(Errc::kUsage, fmt::format("rank {} holds no draft", rank.global));
  }
  if (options.has("json")) {
    fmt::print("{}\n", to_json(*key).dump());
  } else {
    print(*key);
  }
  return 0;
}

}  // namespace preload::cli
