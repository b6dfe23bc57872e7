// SPDX-License-Identifier: Apache-2.0
#include "warmup/engine_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace preload::warmup {
namespace {

// vLLM lays the ranks out as [dp][pp][tp]; a group runs along the dimensions that it has whole.
std::vector<int> ranks_along(const ParallelSizes& sizes, const RankCoords& at, bool dp, bool pp,
                             bool tp) {
  std::vector<int> ranks;
  for (int d = dp ? 0 : at.dp; d < (dp ? sizes.dp : at.dp + 1); ++d) {
    for (int p = pp ? 0 : at.pp; p < (pp ? sizes.pp : at.pp + 1); ++p) {
      for (int t = tp ? 0 : at.tp; t < (tp ? sizes.tp : at.tp + 1); ++t) {
        ranks.push_back((d * sizes.pp + p) * sizes.tp + t);
      }
    }
  }
  return ranks;
}

}  // namespace

std::string_view group_name(GroupKind kind) noexcept {
  switch (kind) {
    case GroupKind::kTensor:
      return "tp";
    case GroupKind::kExpert:
      return "ep";
    case GroupKind::kData:
      return "dp";
    case GroupKind::kPipeline:
      return "pp";
    case GroupKind::kWorld:
      break;
  }
  return "world";
}

std::string describe(const EngineGroup& group) {
  std::vector<std::string_view> names;
  for (const GroupKind kind : group.kinds) names.push_back(group_name(kind));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<EngineGroup> engine_groups(const ParallelSizes& sizes, int global, bool experts) {
  const RankCoords at = coords_of(global, sizes);
  std::vector<std::pair<GroupKind, std::vector<int>>> kinds;
  kinds.emplace_back(GroupKind::kTensor, ranks_along(sizes, at, false, false, true));
  if (experts) kinds.emplace_back(GroupKind::kExpert, ranks_along(sizes, at, true, false, true));
  kinds.emplace_back(GroupKind::kData, ranks_along(sizes, at, true, false, false));
  kinds.emplace_back(GroupKind::kPipeline, ranks_along(sizes, at, false, true, false));
  kinds.emplace_back(GroupKind::kWorld, ranks_along(sizes, at, true, true, true));

  std::vector<EngineGroup> groups;
  for (auto& [kind, ranks] : kinds) {
    if (ranks.size() < 2) continue;
    const auto same = std::ranges::find(groups, ranks, &EngineGroup::ranks);
    if (same != groups.end()) {
      same->kinds.push_back(kind);
      continue;
    }
    const auto self = std::ranges::find(ranks, global) - ranks.begin();
    groups.push_back({{kind}, std::move(ranks), static_cast<int>(self)});
  }
  return groups;
}

}  // namespace preload::warmup
