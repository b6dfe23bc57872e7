// SPDX-License-Identifier: Apache-2.0
#include "run/kept_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"

namespace preload::run {

std::string path_kept_by_all(Group& group, warmup::TuningStore& store, const std::string& table,
                             const Wait& wait) {
  const std::string path = store.path_of(table);
  const auto told = group.all_gather(
      path.empty() ? fmt::format("rank {} on {}", group.rank(), host_name()) : "", wait);
  const auto without = std::ranges::find_if(told, [](const auto& each) { return !each.empty(); });
  if (without == told.end()) return path;
  if (group.rank() == 0) {
    log::warn(fmt::format(
        "NCCL's tuning table is not kept on every node: {} does not find it in its cache "
        "(PRELOAD_CACHE_ROOT), see that node's log; engines must have PRELOAD_TUNER_TABLE on none "
        "of their ranks until `preload tune` has run again with room and permission there",
        *without));
  }
  return {};
}

}  // namespace preload::run
