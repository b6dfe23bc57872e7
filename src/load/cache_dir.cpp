// SPDX-License-Identifier: Apache-2.0
#include "load/cache_dir.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

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

constexpr std::time_t kTemporaryLifeS = 3600;  // far longer than writing an entry takes

struct Entry {
  std::string name;
  std::uint64_t bytes = 0;
  timespec used{};
};

bool used_later(const Entry& a, const Entry& b) {
  return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec > b.used.tv_sec
                                        : a.used.tv_nsec > b.used.tv_nsec;
}

}  // namespace

std::string cache_path(const std::string& name) {
  const fs::path root = cache_root();
  return root.empty() ? std::string() : (root / name).string();
}

Fd open_cache_dir(const std::string& name, bool create) {
  const fs::path folder = cache_path(name);
  if (folder.empty()) return {};
  if (create) {
    const fs::path root = folder.parent_path();
    fs::create_directories(root.parent_path());
    ::mkdir(root.c_str(), 0700);
    ::mkdir(folder.c_str(), 0700);
  } else if (!fs::is_directory(folder)) {
    return {};
  }
  return open_fd(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, Errc::kInternal);
}

void mark_used(int folder, const std::string& entry) noexcept {
  ::utimensat(folder, entry.c_str(), nullptr, 0);  // at worst it is dropped earlier
}

void prune_cache(int folder, const CacheLimits& limits) {
  std::vector<Entry> entries;
  const std::time_t now = ::time(nullptr);
  for (const auto& file : fs::directory_iterator(fmt::format("/proc/self/fd/{}", folder))) {
    Entry entry{file.path().filename().string()};
    struct stat status {};
    if (::fstatat(folder, entry.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(status.st_mode)) continue;
    if (entry.name.starts_with('.')) {
      if (status.st_mtim.tv_sec + kTemporaryLifeS < now) ::unlinkat(folder, entry.name.c_str(), 0);
      continue;
    }
    entry.bytes = static_cast<std::uint64_t>(status.st_size);
    entry.used = status.st_mtim;
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, used_later);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    bytes += entries[i].bytes;
    const bool fits = i < limits.entries && bytes <= limits.bytes;
    if (i > 0 && !fits) ::unlinkat(folder, entries[i].name.c_str(), 0);
  }
}

}  // namespace preload
