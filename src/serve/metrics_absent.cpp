// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "serve/metrics.hpp"

// Compiled where the build found no prometheus-cpp.
namespace preload {

bool built_with_metrics() noexcept { return false; }

std::string metrics_text(const Health& /*health*/, const std::string& /*job*/,
                         const NodeReport& /*report*/) {
  throw Error(Errc::kUsage, kNoMetrics);
}

}  // namespace preload
