// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace preload::tuner {

inline constexpr const char* kPluginName = "libnccl-tuner-preload.so";

// Whether NCCL_TUNER_PLUGIN names ours: by its file, or by the word that NCCL makes the file's name
// of.
bool names_plugin(const std::string& value);
// NCCL cuts what NCCL_TUNER_PLUGIN says after so many bytes.
inline constexpr std::size_t kMaxPluginPath = 254;

// The plugin of this build or installation: its path as NCCL_TUNER_PLUGIN takes it. Throws
// Error(kUsage) that says where it was looked for, or that its path is too long for NCCL.
std::string find_plugin();

}  // namespace preload::tuner
