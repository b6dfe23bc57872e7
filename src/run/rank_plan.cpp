// SPDX-License-Identifier: Apache-2.0
#include "run/rank_plan.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "cli/draft_options.hpp"
#include "model/model_layout.hpp"
#include "plan/shared_reads.hpp"
#include "plan/spread_choice.hpp"

namespace preload::run {
namespace {

// Thousands of headers on a slow network file system take their time; a rank 0 that fails meanwhile
// tells the others through the job channel.
constexpr std::chrono::minutes kMetadataTimeout{30};

// A rank that holds nothing of a role has its program without the tensors.
CopyProgram program_of(const ModelLayout& layout, const std::optional<RankCoords>& coords) {
  CopyProgram program = layout.program(coords.value_or(RankCoords{}));
  if (!coords) program.tensors.clear();
  return program;
}

// What every member of a group holds.
std::vector<std::vector<HeldRows>> members_of(const SpreadGroup& group, const Launch& launch,
                                              Role role, const ModelLayout& layout,
                                              const Cancel& cancel, RankPlan& plan) {
  std::vector<std::vector<HeldRows>> members;
  plan.spread.slabs.clear();
  for (int rank = group.first; rank < group.first + group.count; ++rank) {
    const auto add = [&](const CopyProgram& program, const LoadPlan& load) {
      const bool near = launch.places[static_cast<std::size_t>(rank)].node == launch.place.node;
      plan.spread.slabs.push_back(near ? load.slabs.slabs : std::vector<SlabSpec>{});
      members.push_back(held_rows(program, load, group.member(rank)));
    };
    if (rank == launch.place.global) {
      add(plan.program, plan.load);
    } else {
      const CopyProgram program = program_of(layout, coords_in_role(role, launch, rank));
      add(program, plan_load(program, plan.checkpoint));
    }
    cancel.check();
  }
  return members;
}

// The reads of a wide group's nodes, each for itself; the slowest node counts.
double seconds_apart(const SpreadGroup& group, const Launch& launch, Spread spread,
                     const LinkRates& rates, const std::vector<std::vector<HeldRows>>& members) {
  double slowest = 0;
  for (int first = group.first; first < group.first + group.count;) {
    const int count = launch.places[static_cast<std::size_t>(first)].local_size;
    const auto begin = members.begin() + (first - group.first);
    std::vector<std::vector<HeldRows>> node(begin, begin + count);
    for (std::size_t i = 0; i < node.size(); ++i) {
      for (HeldRows& held : node[i]) held.to.owner = static_cast<std::uint32_t>(i);
    }
    const std::vector<ReadPlan> plans = plan_node_reads(std::move(node), spread, rates);
    slowest = std::max(slowest, estimate_seconds(reads_of(plans), rates));
    first += count;
  }
  return slowest;
}

// The group's plans, when its nodes read for each other and that pays; none when not.
std::vector<ReadPlan> plan_wide_reads(const SpreadGroup& wide, const Launch& launch, Spread spread,
                                      const std::vector<SpreadFacts>& facts,
                                      std::vector<std::vector<HeldRows>> members) {
  const double apart =
      spread == Spread::kAlways
          ? 0
          : seconds_apart(wide, launch, spread, node_rates(launch, wide, facts), members);
  std::vector<ReadPlan> plans = plan_spread_reads(std::move(members), least_spread_bytes(spread));
  if (spread == Spread::kAlways) return plans;
  const double together = estimate_seconds(reads_of(plans), wide_rates(launch, wide, facts));
  return together + kStartBetweenNodesSeconds < apart ? std::move(plans) : std::vector<ReadPlan>{};
}

void plan_reads(Group& group, const cli::ServeOptions& options, const Launch& launch, Role role,
                const ModelLayout& layout, const Cancel& cancel, RankPlan& plan) {
  if (!may_spread(options, launch)) {
    plan.reads = plan_own_reads(held_rows(plan.program, plan.load, 0), 0);
    return;
  }
  const std::vector<SpreadFacts> facts =
      gather_spread_facts(group, options, launch, plan.checkpoint, cancel);
  const SpreadGroup own = node_group(launch);
  const SpreadGroup wide = wide_group(launch, options.spread, facts);
  std::vector<ReadPlan> plans;
  plan.spread.group = wide;
  if (wide != own) {
    plans = plan_wide_reads(wide, launch, options.spread, facts,
                            members_of(wide, launch, role, layout, cancel, plan));
  }
  if (plans.empty()) {
    plan.spread.group = own;
    plans = plan_node_reads(members_of(own, launch, role, layout, cancel, plan), options.spread,
                            node_rates(launch, own, facts));
  }
  const std::uint32_t self = plan.spread.group.member(launch.place.global);
  for (const ReadPlan& each : plans) {
    plan.spread.most_givers = std::max(plan.spread.most_givers, each.givers.size());
  }
  plan.spread.incoming = plan_incoming(plans, self);
  plan.reads = std::move(plans.at(self));
  plans.clear();
  malloc_trim(0);  // of what the other ranks' plans took
  if (plan.reads.sent_bytes + plan.reads.received_bytes == 0) return;
  log::info(fmt::format(
      "this rank reads {} for {}, hands {} on and is handed {}",
      format_bytes(plan.reads.read_bytes),
      plan.spread.group.nodes > 1 ? fmt::format("{} nodes", plan.spread.group.nodes) : "its node",
      format_bytes(plan.reads.sent_bytes), format_bytes(plan.reads.received_bytes)));
}

}  // namespace

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

bool may_spread(const cli::ServeOptions& options, const Launch& launch) {
  return launch.sizes.world() > 1 && options.spread != Spread::kNever;
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
  log::info(fmt::format("{}: {} of {}; this rank holds {} in {}", role_name(role.role),
                        counted(plan.checkpoint.tensors.size(), "tensor"),
                        counted(plan.checkpoint.files.size(), "file"),
                        counted(plan.program.tensors.size(), "tensor"),
                        format_bytes(plan.load.slabs.total_bytes())));
  plan_reads(group, options, launch, role.role, *layout, cancel, plan);
  return plan;
}

}  // namespace preload::run
