// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/serve_options.hpp"
#include "load/loader.hpp"
#include "plan/key.hpp"
#include "run/launch.hpp"
#include "run/rank_plan.hpp"
#include "serve/residency.hpp"

namespace preload::run {

// What this rank will serve, but for the slabs' handles: key, manifest in a sealed memfd, texts.
Residency build_residency(const cli::ServeOptions& options, const Launch& launch,
                          const RankPlan& plan, const LoadResult& result,
                          const std::vector<SourceHash>& sources, std::string receipt_json,
                          const Endpoint& endpoint);

}  // namespace preload::run
