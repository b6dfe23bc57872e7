// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options.hpp"

namespace preload::cli {

// Who runs the command of --warmup-exec: every rank, or the first of each replica (the tp × pp
// ranks of one dp rank) for an engine that starts its own workers.
enum class WarmupScope { kRank, kReplica };
std::string_view scope_name(WarmupScope scope) noexcept;  // "rank", "replica"

struct WarmupOptions {
  std::string command;                     // --warmup-exec; empty: none
  WarmupScope scope = WarmupScope::kRank;  // --warmup-exec-scope
  std::chrono::seconds limit{1800};        // --warmup-exec-timeout
  bool required = false;                   // --warmup-required
  bool always = false;                     // --warmup-exec-always
  std::string cache_dir;                   // --warmup-cache-dir; "": below the cache root
  // The process's environment as it was started with, NAME=VALUE: later this process sets in its
  // own what is not for the command.
  std::vector<std::string> inherited;
};

// Throws Error(kUsage) for flags that say how to run a command that is not given.
WarmupOptions warmup_options(const ParsedOptions& options);

}  // namespace preload::cli
