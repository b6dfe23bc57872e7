// SPDX-License-Identifier: Apache-2.0
#include "load/cache_dir.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/environment.hpp"

namespace preload {

namespace {

namespace fs = std::filesystem;

fs::path cache_root() {
  if (const std::string root = environment("PRELOAD_CACHE_ROOT"); !root.empty()) return root;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "preload";
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    return fs::path(home) / ".cache" / "preload";
  }
  return {};
}

}  // namespace

Fd open_cache_dir(const std::string& name, bool create) {
  const fs::path root = cache_root();
  if (root.empty()) return {};
  const fs::path folder = root / name;
  if (create) {
    fs::create_directories(root.parent_path());
    ::mkdir(root.c_str(), 0700);
    ::mkdir(folder.c_str(), 0700);
  } else if (!fs::is_directory(folder)) {
    return {};
  }
  return open_fd(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, Errc::kInternal);
}

}  // namespace preload
