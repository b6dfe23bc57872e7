// SPDX-License-Identifier: Apache-2.0
#include "warmup/backend.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "tuner/plugin_file.hpp"
#include "warmup/nccl_settings.hpp"

namespace preload::warmup {
namespace {

constexpr const char* kPluginVariable = "NCCL_TUNER_PLUGIN";
constexpr const char* kTableVariable = "PRELOAD_TUNER_TABLE";

}  // namespace

Backend gpu_backend() {
  Backend backend;
  const std::string set = nccl_settings()[kPluginVariable];
  if (!set.empty() && !tuner::names_plugin(set)) {
    backend.in_the_way = fmt::format("{} names another plugin, '{}'", kPluginVariable, set);
    return backend;
  }
  try {
    backend.plugin = tuner::find_plugin();
  } catch (const Error& error) {
    backend.in_the_way = error.what();
    return backend;
  }
  ::setenv(kPluginVariable, backend.plugin.c_str(), 1);
  // What an engine is to obey is not what a sweep begins with.
  ::unsetenv(kTableVariable);
  return backend;
}

}  // namespace preload::warmup
