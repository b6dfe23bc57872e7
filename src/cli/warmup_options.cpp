// SPDX-License-Identifier: Apache-2.0
#include "cli/warmup_options.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"

namespace preload::cli {
namespace {

constexpr auto kNeedCommand =
    std::to_array<const char*>({"warmup-exec-scope", "warmup-exec-timeout", "warmup-exec-always",
                                "warmup-required", "warmup-cache-dir"});

}  // namespace

std::string_view scope_name(WarmupScope scope) noexcept {
  return scope == WarmupScope::kRank ? "rank" : "replica";
}

WarmupOptions warmup_options(const ParsedOptions& options) {
  WarmupOptions warmup;
  if (!options.has("warmup-exec")) {
    for (const char* name : kNeedCommand) {
      if (!options.has(name)) continue;
      throw Error(Errc::kUsage, fmt::format("--{} is for --warmup-exec, which is not given", name));
    }
    return warmup;
  }
  warmup.command = *options.text("warmup-exec");
  if (warmup.command.find_first_not_of(" \t\n") == std::string::npos) {
    throw Error(Errc::kUsage, "--warmup-exec is empty: give a command for /bin/sh");
  }
  if (options.choice("warmup-exec-scope", {"rank", "replica"}).value_or(0) == 1) {
    warmup.scope = WarmupScope::kReplica;
  }
  if (const auto seconds = options.number("warmup-exec-timeout", 1)) {
    warmup.limit = std::chrono::seconds(*seconds);
  }
  warmup.required = options.has("warmup-required");
  warmup.always = options.has("warmup-exec-always");
  if (const auto folder = options.text("warmup-cache-dir")) {
    if (!folder->starts_with('/')) {
      throw Error(
          Errc::kUsage,
          fmt::format("--warmup-cache-dir must be an absolute path, since engines are given "
                      "it: '{}'",
                      *folder));
    }
    warmup.cache_dir = *folder;
  }
  return warmup;
}

}  // namespace preload::cli
