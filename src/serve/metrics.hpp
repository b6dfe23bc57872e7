// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "serve/node_watch.hpp"

namespace preload {

// Whether this build has prometheus-cpp, which writes the text.
bool built_with_metrics() noexcept;
inline constexpr const char* kNoMetrics =
    "this preload was built without prometheus-cpp and has no metrics: build it where "
    "prometheus-cpp-dev is installed\n";

// What a node's daemons hold and do, in Prometheus' text format (version 0.0.4), one time series
// for each daemon: labels gpu_uuid, slot, role, rank and model. Throws Error(kUsage) without
// prometheus-cpp.
std::string metrics_text(const Health& health, const std::string& job, const NodeReport& report);

inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace preload
