// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_blob.hpp"

#include <algorithm>
#include <filesystem>

namespace preload {

std::string hub_blob(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  if (error || target.parent_path().filename() != "blobs") return {};
  const bool in_snapshot =
      std::ranges::any_of(fs::path(path), [](const fs::path& part) { return part == "snapshots"; });
  std::string name = target.filename().string();
  const bool is_sha256 = name.size() == 64 && std::ranges::all_of(name, [](char c) {
                           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                         });
  return in_snapshot && is_sha256 ? name : std::string();
}

}  // namespace preload
