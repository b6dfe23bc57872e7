// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "artifact/tier.hpp"
#include "plan/topology.hpp"
#include "warmup/sweep_report.hpp"

namespace preload::warmup {

// What a sweep leaves: the table in the form that NCCL's tuner reads, and all that was measured.
struct TuningTexts {
  std::string table;
  std::string sweep;
  friend bool operator==(const TuningTexts&, const TuningTexts&) = default;
};

// Where a node keeps it: <rank>.json is the table, .csv the same for NCCL's example tuner,
// .sweep.json the sweep, under the names of the node's first rank.
class TuningStore {
 public:
  // `config`: of artifact::config_hash; `here` with the NCCL's version.
  TuningStore(artifact::Tier& tier, const RankCoords& node_first, std::string config,
              artifact::Environment here, std::string model);

  std::optional<TuningTexts> find();  // both, and the table a good one
  // Takes the place of what was measured in the same environment before.
  void keep(const TuningTexts& texts);
  std::string path();  // of the table; "" when it is not kept

 private:
  artifact::Key key(const char* suffix) const;
  void put(const char* suffix, const std::string& text);

  artifact::Tier& tier_;
  const RankCoords node_first_;
  const std::string config_;
  const artifact::Environment here_;
  const std::string model_;
};

// What is kept of a model ("": of any), whatever environment it was measured in.
struct StoredSweep {
  std::string table;  // its path; "" when it is gone
  SweepReport report;
};
std::vector<StoredSweep> stored_sweeps(artifact::Tier& tier, const std::string& model);
// {"sweeps": [{"table": PATH, …}]}, as `preload tune --json` prints it.
std::string sweeps_json(const std::vector<StoredSweep>& sweeps);

}  // namespace preload::warmup
