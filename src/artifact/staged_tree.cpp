// SPDX-License-Identifier: Apache-2.0
#include "artifact/staged_tree.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>

#include "artifact/disk_folder.hpp"
#include "base/error.hpp"

namespace preload::artifact {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kLifeS = 24 * 3600;  // where locks of directories do not work (NFS)
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string staging_prefix(const std::string& target) { return fmt::format(".{}.tmp-", target); }

// 0, or the error that says why not: EWOULDBLOCK where another process has the lock.
int try_lock(int fd) noexcept { return ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno; }

void remove_tree(int parent, const std::string& name) noexcept {
  std::error_code ignored;
  fs::remove_all(fmt::format("/proc/self/fd/{}/{}", parent, name), ignored);
}

void remove_stale(int parent, const std::string& prefix) {
  for (const std::string& name : names_in(parent)) {
    if (!name.starts_with(prefix)) continue;
    const Fd folder(::openat(parent, name.c_str(), kFolder));
    struct stat status {};
    if (!folder || ::fstat(folder.get(), &status) != 0) continue;
    const int busy = try_lock(folder.get());
    const bool old = status.st_mtim.tv_sec + kLifeS < ::time(nullptr);
    if (busy == 0 || (busy != EWOULDBLOCK && old)) remove_tree(parent, name);
  }
}

// True where `to` had nothing of that name.
bool move_unless_there(int from, int to, const std::string& name) {
  const char* const c = name.c_str();
  if (::renameat2(from, c, to, c, RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) return false;
  if (::linkat(from, c, to, c, 0) == 0) return true;
  if (errno == EEXIST || ::faccessat(to, c, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return false;
  check_sys(::renameat(from, c, to, c), fmt::format("cannot put '{}' into its place", name));
  return true;
}

void merge_folder(int from, int to, const std::string& prefix, BundleSummary& summary) {
  const auto skip = [&](const std::string& name, const char* why) {
    if (summary.skipped++ == 0) summary.first_skipped = fmt::format("'{}{}' {}", prefix, name, why);
  };
  for (const std::string& name : names_in(from)) {
    if (move_unless_there(from, to, name)) continue;
    const Fd source(::openat(from, name.c_str(), kFolder));
    if (!source) {
      skip(name, "is there already");
      continue;
    }
    const Fd target(::openat(to, name.c_str(), kFolder));
    if (target) {
      merge_folder(source.get(), target.get(), prefix + name + "/", summary);
    } else {
      skip(name, "is there and no directory");
    }
  }
}

}  // namespace

StagedTree::StagedTree(const std::string& directory) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(directory, error);  // a link of the user's is followed
  if (error || !whole.has_filename()) whole = fs::path(directory).parent_path();
  fs::create_directories(whole.parent_path(), error);
  target_ = whole.filename().string();
  parent_ =
      open_fd(AT_FDCWD, whole.parent_path().string(), O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
  const std::string prefix = staging_prefix(target_);
  remove_stale(parent_.get(), prefix);
  std::random_device random;
  do {
    name_ = fmt::format("{}{:08x}{:08x}", prefix, random(), random());
    check_sys(::mkdirat(parent_.get(), name_.c_str(), 0700),
              fmt::format("cannot make a directory beside '{}'", directory), Errc::kUsage);
    folder_ = Fd(::openat(parent_.get(), name_.c_str(), kFolder));
    // Whoever cleans up between the two takes it away, or has its lock and is about to: another.
  } while (!folder_ || try_lock(folder_.get()) == EWOULDBLOCK ||
           ::faccessat(parent_.get(), name_.c_str(), F_OK, 0) != 0);
}

StagedTree::~StagedTree() {
  if (!name_.empty()) remove_tree(parent_.get(), name_);
}

// Nothing is synced: after a loss of power these are what the tools that fill such caches leave
// then, which do not either, and a sync of thousands of files would cost more than the cache saves.
void StagedTree::merge(BundleSummary& summary) {
  ::fchmod(folder_.get(), 0755);
  if (::renameat2(parent_.get(), name_.c_str(), parent_.get(), target_.c_str(), RENAME_NOREPLACE) ==
      0) {
    name_.clear();
    return;
  }
  if (::mkdirat(parent_.get(), target_.c_str(), 0777) != 0 && errno != EEXIST) {
    check_sys(-1, fmt::format("cannot make '{}'", target_), Errc::kUsage);
  }
  const Fd target = open_fd(parent_.get(), target_, O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
  merge_folder(folder_.get(), target.get(), "", summary);
}

}  // namespace preload::artifact
