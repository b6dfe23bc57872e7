// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "artifact/disk_tier.hpp"
#include "checkpoint/checkpoint.hpp"
#include "model/model_spec.hpp"
#include "run/rank_context.hpp"
#include "run/tuning_facts.hpp"
#include "warmup/backend.hpp"
#include "warmup/nccl_timer.hpp"
#include "warmup/sweep_report.hpp"
#include "warmup/tuning_store.hpp"

namespace preload::run {

// Whose messages are tuned.
struct TuningSubject {
  const cli::ModelOptions& model;
  const Checkpoint& checkpoint;
  const ModelSpec& spec;
};

enum class TuningUse {
  kReuse,   // what was found before holds; else measure
  kLookUp,  // what was found before holds; measure nothing
  kAnew,    // measure
};

struct TuningOutcome {
  std::string table;                          // path on this node; "" without one
  std::optional<warmup::SweepReport> report;  // of what was measured, or found
};

// NCCL's collectives, before READY: measured by all ranks of a job on the very GPUs and links that
// the engine will use, or found on disk. Leaves nothing on the GPU.
class CollectiveTuning {
 public:
  // All outlive it.
  CollectiveTuning(RankContext& rank, const TuningSubject& subject, const warmup::Backend& backend);
  // Collective. Says in one line why nothing is tuned where that is so.
  TuningOutcome run(TuningUse use);

 private:
  TuningFacts own_facts() const;
  std::vector<TuningFacts> gather_facts();
  std::vector<warmup::EngineGroup> engine_groups() const;  // as many on every rank
  warmup::TuningStore make_store(const std::vector<TuningFacts>& ranks);
  bool is_node_first() const noexcept { return rank_.launch.place.local == 0; }
  // The table that some node has, on all nodes; nothing when none has one.
  std::optional<warmup::TuningTexts> share_found(warmup::TuningStore& store);
  std::optional<warmup::TuningTexts> measure(const std::vector<TuningFacts>& ranks, TuningUse use);
  warmup::SweepReport sweep(warmup::NcclTimer& timer,
                            const std::vector<std::vector<tuner::Shape>>& shapes,
                            const std::vector<warmup::EngineGroup>& groups,
                            const std::vector<TuningFacts>& ranks, std::uint64_t buffer_bytes);
  std::vector<std::vector<tuner::Shape>> gather_shapes(const warmup::NcclTimer& timer);
  void keep(warmup::TuningStore& store, const warmup::TuningTexts& texts);

  RankContext& rank_;
  const TuningSubject subject_;
  const warmup::Backend& backend_;
  artifact::DiskTier tier_;
};

}  // namespace preload::run
