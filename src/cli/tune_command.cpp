// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "artifact/disk_tier.hpp"
#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/runtime_exec.hpp"
#include "cli/tuning_options.hpp"
#include "comm/launcher.hpp"
#include "warmup/tuning_store.hpp"

namespace preload::cli {
namespace {

void show(const TuneOptions& options) {
  artifact::DiskTier tier;
  const std::vector<warmup::StoredSweep> sweeps =
      warmup::stored_sweeps(tier, options.serve.model.model);
  if (sweeps.empty()) {
    const std::string& model = options.serve.model.model;
    throw Error(Errc::kUnavailable,
                fmt::format("no sweep of NCCL's collectives{} is kept under {}: measure one with "
                            "`mpirun -np N preload tune --model DIR -tp N`, or let serve do it",
                            model.empty() ? "" : fmt::format(" for {}", model),
                            tier.root().empty() ? "a cache directory" : tier.root()));
  }
  if (options.json) {
    fmt::print("{}\n", warmup::sweeps_json(sweeps));
    return;
  }
  for (const warmup::StoredSweep& sweep : sweeps) {
    fmt::print("{}\n{}\n", sweep.table, to_text(sweep.report));
  }
}

}  // namespace

int run_tune(const Arguments& arguments) {
  const TuneOptions options = parse_tune_options(arguments);
  if (detect_launcher().kind == Launcher::Kind::kNone) {
    show(options);
    return 0;
  }
  Arguments whole = arguments;
  whole.insert(whole.begin(), "tune");
  exec_runtime(whole);
}

}  // namespace preload::cli
