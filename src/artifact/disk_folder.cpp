// SPDX-License-Identifier: Apache-2.0
#include "artifact/disk_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "base/trusted_folder.hpp"

namespace preload::artifact {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kLock = ".lock";
constexpr auto kPatience = std::chrono::seconds(60);
constexpr auto kRetry = std::chrono::milliseconds(10);
constexpr std::size_t kMaxRecordBytes = 1 << 20;
constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;

Fd open_below(int parent, const std::string& name, bool create) {
  if (create && ::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) {
    check_sys(-1, fmt::format("cannot make the folder '{}'", name));
  }
  const int raw = ::openat(parent, name.c_str(), kFolder);
  if (raw < 0 && errno == ENOENT && !create) return {};
  check_sys(raw, fmt::format("cannot open the folder '{}'", name));
  return Fd(raw);
}

// Folders only: what else lies there is none of ours.
std::vector<std::string> folders_in(int parent) {
  std::vector<std::string> names = names_in(parent);
  std::erase_if(names, [&](const std::string& name) {
    struct stat status {};
    return name.starts_with('.') ||
           ::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
           !S_ISDIR(status.st_mode);
  });
  return names;
}

void add_files(int folder, const std::string& kind, const std::string& config_hash,
               std::vector<DiskFile>& files) {
  const std::vector<std::string> names = names_in(folder);
  for (const std::string& name : names) {
    struct stat status {};
    if (name.starts_with('.') ||
        ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode)) {
      continue;
    }
    DiskFile file{{kind, config_hash, name},
                  static_cast<std::uint64_t>(status.st_size),
                  status.st_mtim.tv_sec,
                  std::nullopt};
    for (const std::string& record : names) {
      if (!is_record_of(record, name)) continue;
      const auto text = read_file_at(folder, record, kMaxRecordBytes);
      auto parsed = text ? record_from_json(*text) : std::nullopt;
      if (!parsed || parsed->bytes != file.bytes) continue;
      if (::fstatat(folder, record.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        file.used = status.st_mtim.tv_sec;
      }
      file.record = std::move(parsed);
    }
    files.push_back(std::move(file));
  }
}

}  // namespace

Fd open_root(const std::string& root, bool create) {
  if (root.empty()) return {};
  if (create) {
    std::error_code ignored;  // the open below says what is wrong
    fs::create_directories(fs::path(root).parent_path(), ignored);
    ::mkdir(root.c_str(), 0700);
  }
  const int raw = ::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (raw < 0 && errno == ENOENT && !create) return {};
  check_sys(raw, fmt::format("cannot open the folder '{}'", root));
  Fd fd(raw);
  struct stat status {};
  check_sys(::fstat(raw, &status), fmt::format("cannot stat '{}'", root));
  const std::string_view reason = untrusted_because(status);
  if (reason.empty()) return fd;
  throw Error(Errc::kUsage,
              fmt::format("'{}' {}, and what lies there is run: chmod o-w it, or name another "
                          "folder in PRELOAD_CACHE_ROOT",
                          root, reason));
}

Fd open_folder(int root, const Key& key, bool create) {
  const Fd kind = open_below(root, key.kind, create);
  if (!kind) return {};
  return open_below(kind.get(), key.config_hash, create);
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/self/fd/{}", folder))) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<DiskFile> files_below(int root, std::string_view only_kind) {
  std::vector<DiskFile> files;
  for (const std::string& kind : folders_in(root)) {
    if (!only_kind.empty() && kind != only_kind) continue;
    const Fd folder = open_below(root, kind, false);
    if (!folder) continue;
    for (const std::string& config_hash : folders_in(folder.get())) {
      const Fd leaf = open_below(folder.get(), config_hash, false);
      if (leaf) add_files(leaf.get(), kind, config_hash, files);
    }
  }
  return files;
}

RootLock::RootLock(int root)
    : fd_(open_fd(root, kLock, O_RDWR | O_CREAT | O_NOFOLLOW, 0600, Errc::kInternal)) {
  const auto deadline = Clock::now() + kPatience;
  while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    if (Clock::now() >= deadline) {
      throw Error(Errc::kTimeout,
                  fmt::format("another process has held the lock '{}' for {} s: end the one "
                              "that hangs (fuser names it), or try again",
                              kLock, kPatience.count()));
    }
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace preload::artifact
