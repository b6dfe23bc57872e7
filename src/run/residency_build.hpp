// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "load/loader.hpp"
#include "plan/key.hpp"
#include "run/launch.hpp"
#include "run/rank_plan.hpp"
#include "serve/residency.hpp"
#include "wire/manifest.hpp"

namespace preload::run {

// What this rank will serve of a role, but for the slabs' handles: key, manifest in a sealed memfd,
// texts. The rank holds some of it.
Residency build_residency(const Launch& launch, const RankRole& role, const RankPlan& plan,
                          const LoadResult& result, std::string checkpoint_id,
                          std::string receipt_json);

// One tensor of the plan's program as the manifest has it.
wire::ManifestTensor manifest_tensor(const RankPlan& plan, std::size_t tensor, const Hash128& hash);

}  // namespace preload::run
