// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/serve_options.hpp"
#include "model/layout.hpp"

namespace preload::cli {

// What the draft's own flags would be, had it been asked for alone; nothing where there is none, or
// none that is served. Its request is complete once follow_target has seen the target.
std::optional<ModelOptions> draft_options(const ModelOptions& target);

// A draft runs on the ranks of the target's last pipeline stage, as one stage; experts are spread
// where it has some.
ParallelSizes draft_sizes(const ModelOptions& draft, const ParallelSizes& target);
// A rank's place among the draft's ranks; nothing where it holds nothing of it.
std::optional<RankCoords> draft_coords(const RankCoords& target, const ParallelSizes& sizes);

// Why the draft that is asked for is not held beside its target: for the log, and no error. Nothing
// where it is, or none is asked for.
std::optional<std::string> why_not_held(const ModelOptions& target);
std::optional<std::string> why_not_held(const ModelOptions& draft, const ModelSpec& spec);

// The draft of a model, opened and found to fit it; nothing, with a warning, where it is not held.
// For commands that run alone: the ranks of a job share one reading of the files.
struct DraftModel {
  ModelOptions options;
  Checkpoint checkpoint;
  ModelSpec spec;
};
std::optional<DraftModel> open_draft(const ModelOptions& target, const Checkpoint& checkpoint,
                                     const ModelSpec& spec);

}  // namespace preload::cli
