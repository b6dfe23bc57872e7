// SPDX-License-Identifier: Apache-2.0
#include "run/tune.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/error.hpp"
#include "memory/device.hpp"
#include "model/layout.hpp"
#include "run/collective_tuning.hpp"
#include "run/rank_context.hpp"
#include "run/rank_ending.hpp"
#include "run/rank_plan.hpp"
#include "run/rank_start.hpp"
#include "warmup/tuning_store.hpp"

namespace preload::run {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(5);
constexpr auto kToStop = std::chrono::seconds(30);

void print(const TuningOutcome& outcome, bool json) {
  std::vector<warmup::StoredSweep> sweeps;
  if (outcome.report) sweeps.push_back({outcome.table, *outcome.report});
  std::string text;
  if (json) text = warmup::sweeps_json(sweeps) + "\n";
  for (const warmup::StoredSweep& sweep : sweeps) {
    if (!json) text += fmt::format("{}\n{}", sweep.table, to_text(sweep.report));
  }
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error(Errc::kInternal, "standard output cannot be written");
  }
}

// The end of a job that has done what it was for: nobody's connection breaks without a word.
ServeEnd end_together(RankContext& rank) {
  if (rank.launch.coords.global == 0) rank.supervision.request_stop();
  const auto deadline = std::chrono::steady_clock::now() + kToStop;
  while (!rank.control.decided()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(Errc::kTimeout, "rank 0 did not end the job");
    }
    std::this_thread::sleep_for(kPoll);
  }
  return *rank.control.decided();
}

ServeEnd work(RankContext& rank, const cli::TuneOptions& options, const warmup::Backend& backend) {
  const cli::ModelOptions& model = options.serve.model;
  const Checkpoint checkpoint = share_checkpoint(rank.group, model, rank.cancel());
  const ModelSpec spec = layout_spec(checkpoint, model.layout, model.hf_overrides);
  CollectiveTuning tuning(rank, {model, checkpoint, spec}, backend);
  const TuningOutcome outcome = tuning.run(TuningUse::kAnew);
  rank.group.finalize({"every rank to end its tuning", rank.cancel()});
  if (rank.launch.cuda) give_up_context(rank.launch.device.ordinal);
  if (rank.launch.coords.global == 0) print(outcome, options.json);
  return end_together(rank);
}

}  // namespace

int tune(const cli::TuneOptions& options, const Launcher& launcher,
         const warmup::Backend& backend) {
  if (options.serve.model.model.empty()) {
    throw Error(Errc::kUsage, "--model is missing: give a checkpoint directory or a hub id");
  }
  return start_rank(
      options.serve, launcher,
      [&](const Launch& launch, Group& group, RankControl& control, Supervision& supervision) {
        RankContext rank(options.serve, launcher, launch, group, control, supervision);
        return RankEnding(rank).run([&] { return work(rank, options, backend); });
      });
}

}  // namespace preload::run
