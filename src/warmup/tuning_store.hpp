// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "artifact/tier.hpp"
#include "warmup/sweep_report.hpp"

namespace preload::warmup {

// What a sweep leaves: the table in the form that NCCL's tuner reads, and all that was measured.
struct TuningTexts {
  std::string table;
  std::string sweep;
  friend bool operator==(const TuningTexts&, const TuningTexts&) = default;
};

// Where a node keeps it: .json is the table, .csv the same for NCCL's example tuner, .sweep.json
// the sweep, all under the name of the job's rank 0, which is the same on every node.
class TuningStore {
 public:
  // `config`: of artifact::config_hash; `job`: what all ranks run on, and the NCCL's version.
  TuningStore(artifact::Tier& tier, std::string config, artifact::Environment job,
              std::string model);

  std::optional<TuningTexts> find();  // both, of one sweep, and the table a good one
  // Takes the place of what was measured in the same environment before.
  void keep(const TuningTexts& texts);
  // Where this very table is kept; "" when another is, or none.
  std::string path_of(const std::string& table);

 private:
  artifact::Key key(const char* suffix) const;
  bool put(const char* suffix, const std::string& text, const std::string& table_hash = {});

  artifact::Tier& tier_;
  const std::string config_;
  const artifact::Environment job_;
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
