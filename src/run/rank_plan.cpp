// SPDX-License-Identifier: Apache-2.0
#include "run/rank_plan.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "cli/draft_options.hpp"
#include "load/file_system.hpp"
#include "model/model_layout.hpp"
#include "plan/spread_choice.hpp"

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

bool is_hot(const Checkpoint& checkpoint) {
  // A few files say it for all of them: they come and go together.
  constexpr std::size_t kSampled = 4;
  const std::size_t step = std::max<std::size_t>(1, checkpoint.files.size() / kSampled);
  for (std::size_t i = 0; i < checkpoint.files.size(); i += step) {
    const SourceFile& file = checkpoint.files[i];
    const Fd fd =
        open_fd(AT_FDCWD, checkpoint.directory + "/" + file.name, O_RDONLY, 0, Errc::kCheckpoint);
    if (file_system_kind(fd.get()) == FileSystemKind::kMemory) continue;
    if (!is_in_page_cache(fd.get(), file.bytes)) return false;
  }
  return true;
}

// Every rank of a node must plan with the same facts: its first rank looks.
bool is_hot_on_node(Group& group, const Checkpoint& checkpoint, const Launch& launch,
                    const Cancel& cancel) {
  const int leader = launch.place.global - launch.place.local;
  std::string mine;
  if (launch.place.local == 0) mine = is_hot(checkpoint) ? "hot" : "cold";
  return group.all_gather(mine, {"every node to look at its page cache", cancel})
             .at(static_cast<std::size_t>(leader)) == "hot";
}

// A rank that holds nothing of a role has its program without the tensors.
CopyProgram program_of(const ModelLayout& layout, const std::optional<RankCoords>& coords) {
  CopyProgram program = layout.program(coords.value_or(RankCoords{}));
  if (!coords) program.tensors.clear();
  return program;
}

void plan_reads(Group& group, const cli::ServeOptions& options, const Launch& launch, Role role,
                const ModelLayout& layout, const Cancel& cancel, RankPlan& plan) {
  const auto self = static_cast<std::uint32_t>(launch.place.local);
  if (!may_spread(options, launch)) {
    plan.reads = plan_own_reads(held_rows(plan.program, plan.load, self), self);
    return;
  }
  const bool hot = is_hot_on_node(group, plan.checkpoint, launch, cancel);
  std::vector<std::vector<HeldRows>> members;
  const auto add = [&](const CopyProgram& program, const LoadPlan& load) {
    plan.node_slabs.push_back(load.slabs.slabs);
    members.push_back(held_rows(program, load, static_cast<std::uint32_t>(members.size())));
  };
  const int first = launch.place.global - launch.place.local;
  for (int local = 0; local < launch.place.local_size; ++local) {
    if (local == launch.place.local) {
      add(plan.program, plan.load);
    } else {
      const CopyProgram program = program_of(layout, coords_in_role(role, launch, first + local));
      add(program, plan_load(program, plan.checkpoint));
    }
    cancel.check();
  }
  plan.reads = std::move(
      plan_node_reads(std::move(members), options.spread, usual_rates(launch.cuda, hot)).at(self));
  malloc_trim(0);  // of what the other ranks' plans took
  if (plan.reads.sent_bytes + plan.reads.received_bytes == 0) return;
  log::info(fmt::format("this rank reads {} for its node, hands {} on and is handed {}",
                        format_bytes(plan.reads.read_bytes), format_bytes(plan.reads.sent_bytes),
                        format_bytes(plan.reads.received_bytes)));
}

}  // namespace

bool may_spread(const cli::ServeOptions& options, const Launch& launch) {
  const bool writable = !launch.cuda || options.export_kind == HandleKind::kVmm;
  return launch.sizes.world() > 1 && options.spread != Spread::kNever && writable;
}

std::optional<RankPlan> plan_rank(Group& group, const cli::ServeOptions& options,
                                  const Launch& launch, const RankRole& role,
                                  const RankPlan* target, const Cancel& cancel) {
  RankPlan plan;
  plan.model = role.model;
  const bool same_files = target != nullptr && role.model.model == target->model.model &&
                          role.model.open.revision == target->model.open.revision;
  plan.checkpoint = same_files ? target->checkpoint : share_checkpoint(group, role.model, cancel);
  if (target != nullptr) {
    follow_target(plan.model.layout, target->checkpoint, target->spec, target->model.layout);
  }
  plan.spec = layout_spec(plan.checkpoint, plan.model.layout, plan.model.hf_overrides);
  if (target != nullptr) {
    if (const auto reason = cli::why_not_held(plan.model, plan.spec)) {
      if (group.rank() == 0) log::warn(*reason);
      return std::nullopt;
    }
    check_draft(plan.model.layout.draft->method, plan.spec, target->spec, role.model.model);
  }
  const auto layout = open_layout(plan.checkpoint, plan.spec, plan.model.layout, role.sizes);
  const LayoutNotes notes = layout->notes();
  if (group.rank() == 0) {
    for (const std::string& warning : notes.warnings) log::warn(warning);
  }
  if (!notes.unservable.empty()) throw Error(Errc::kModel, notes.unservable);
  plan.program = program_of(*layout, role.coords);
  check_program(plan.program, plan.checkpoint);
  plan.load = plan_load(plan.program, plan.checkpoint);
  log::info(fmt::format("{}: {} tensors of {} files; this rank holds {} tensors in {}",
                        role_name(role.role), plan.checkpoint.tensors.size(),
                        plan.checkpoint.files.size(), plan.program.tensors.size(),
                        format_bytes(plan.load.slabs.total_bytes())));
  plan_reads(group, options, launch, role.role, *layout, cancel, plan);
  return plan;
}

}  // namespace preload::run
