// SPDX-License-Identifier: Apache-2.0
#include "tuner/plugin_file.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"

namespace preload::tuner {

bool names_plugin(const std::string& value) {
  return value == "preload" || std::filesystem::path(value).filename() == kPluginName;
}

std::string find_plugin() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::string tried;
  for (const char* relative : {".", PRELOAD_TUNER_FROM_RUNTIME, PRELOAD_TUNER_FROM_COMMAND}) {
    const std::string path =
        (program.parent_path() / relative / kPluginName).lexically_normal().string();
    if (!std::filesystem::exists(path, error)) {
      tried += fmt::format("\n  {}", path);
      continue;
    }
    if (path.size() <= kMaxPluginPath) return path;
    throw Error(Errc::kUsage,
                fmt::format("the path of NCCL's tuner plugin has {} bytes, and NCCL reads {} of "
                            "NCCL_TUNER_PLUGIN; install preload under a shorter prefix: {}",
                            path.size(), kMaxPluginPath, path));
  }
  throw Error(
      Errc::kUsage,
      fmt::format("NCCL's tuner plugin {} was not found; install it with `cmake --install`. "
                  "Tried:{}",
                  kPluginName, tried));
}

}  // namespace preload::tuner
