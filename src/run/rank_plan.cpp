// SPDX-License-Identifier: Apache-2.0
#include "run/rank_plan.hpp"

#include <fmt/format.h>

#include <string>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "model/layout.hpp"

namespace preload::run {
namespace {

// Thousands of headers on a slow network file system take their time; a rank 0 that fails meanwhile
// tells the others through the job channel.
constexpr std::chrono::minutes kMetadataTimeout{30};

Checkpoint share_checkpoint(Group& group, const cli::ModelOptions& options, const Cancel& cancel) {
  Checkpoint checkpoint;
  if (group.rank() == 0) {
    checkpoint = open_checkpoint(options.model, options.open);
    for (const std::string& warning : checkpoint.warnings) log::warn(warning);
  }
  if (group.size() == 1) return checkpoint;
  const std::string bytes = group.broadcast(
      group.rank() == 0 ? encode(checkpoint) : std::string(), 0,
      {"rank 0 to read the checkpoint's index and headers", cancel, kMetadataTimeout});
  return group.rank() == 0 ? std::move(checkpoint) : decode_checkpoint(bytes);
}

}  // namespace

RankPlan plan_rank(Group& group, const cli::ModelOptions& options, const Launch& launch,
                   const Cancel& cancel) {
  RankPlan plan;
  plan.checkpoint = share_checkpoint(group, options, cancel);
  plan.spec = parse_model_spec(plan.checkpoint.config_json, options.hf_overrides);
  plan.program =
      make_program(plan.checkpoint, plan.spec, options.layout, launch.sizes, launch.coords);
  check_program(plan.program, plan.checkpoint);
  plan.load = plan_load(plan.program, plan.checkpoint);
  log::info(fmt::format("{} tensors of {} files; this rank holds {} tensors in {}",
                        plan.checkpoint.tensors.size(), plan.checkpoint.files.size(),
                        plan.program.tensors.size(), format_bytes(plan.load.slabs.total_bytes())));
  group.barrier({"every rank's plan", cancel});
  return plan;
}

}  // namespace preload::run
