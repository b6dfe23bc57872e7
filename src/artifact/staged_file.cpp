// SPDX-License-Identifier: Apache-2.0
#include "artifact/staged_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <random>
#include <span>
#include <vector>

#include "artifact/optional_cancel.hpp"
#include "base/bytes.hpp"
#include "base/sha256.hpp"

namespace preload::artifact {
namespace {

constexpr std::string_view kPrefix = ".tmp-";
constexpr std::time_t kLifeS = 24 * 3600;  // where locks cannot tell

std::string random_name() {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}", kPrefix, random(), random());
}

// 0, or the error that says why not: EWOULDBLOCK where another process has the lock.
int try_lock(int fd) noexcept {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

bool has_a_name(int fd) noexcept {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && status.st_nlink > 0;
}

void remove_if_stale(int folder, const std::string& name) noexcept {
  const Fd fd(::openat(folder, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  const int busy = try_lock(fd.get());
  const bool old = status.st_mtim.tv_sec + kLifeS < ::time(nullptr);
  if (busy == 0 || (busy != EWOULDBLOCK && old)) ::unlinkat(folder, name.c_str(), 0);
}

}  // namespace

StagedFile::StagedFile(int folder) : folder_(folder) {
  // Whoever cleans up between our open and our lock takes the file away, or has its lock and is
  // about to: then another.
  do {
    name_ = random_name();
    fd_ = open_fd(folder, name_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600, Errc::kInternal);
  } while (try_lock(fd_.get()) == EWOULDBLOCK || !has_a_name(fd_.get()));
}

StagedFile::~StagedFile() {
  if (!name_.empty()) ::unlinkat(folder_, name_.c_str(), 0);
}

StagedFile::Copied StagedFile::copy(int content, const Cancel* cancel) {
  std::vector<std::byte> buffer(kMiB);
  Sha256 hash;
  Copied copied;
  while (true) {
    const ssize_t n = ::read(content, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    check_sys(n, "cannot read what is to be kept");
    if (n == 0) break;
    check_cancel(cancel);
    const std::span piece(buffer.data(), static_cast<std::size_t>(n));
    write_full(fd(), piece, fmt::format("'{}'", name_));
    hash.add(piece);
    copied.bytes += piece.size();
  }
  copied.sha256 = hash.hex();
  return copied;
}

void StagedFile::sync() { check_sys(::fsync(fd()), fmt::format("cannot sync '{}'", name_)); }

bool StagedFile::link_as(const std::string& name) {
  sync();
  // The rename that replaces nothing is not everywhere (NFS); hard links are not either (FUSE).
  if (::renameat2(folder_, name_.c_str(), folder_, name.c_str(), RENAME_NOREPLACE) == 0) {
    name_.clear();
    return true;
  }
  if (errno == EEXIST) return false;
  if (::linkat(folder_, name_.c_str(), folder_, name.c_str(), 0) == 0) return true;
  if (errno == EEXIST) return false;
  if (::faccessat(folder_, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) return false;
  replace(name);
  return true;
}

void StagedFile::replace(const std::string& name) {
  sync();
  check_sys(::renameat(folder_, name_.c_str(), folder_, name.c_str()),
            fmt::format("cannot rename '{}' to '{}'", name_, name));
  name_.clear();
}

bool is_temporary(const std::string& name) noexcept { return name.starts_with(kPrefix); }

void remove_stale_temporaries(int folder) noexcept try {
  for (const auto& file :
       std::filesystem::directory_iterator(fmt::format("/proc/self/fd/{}", folder))) {
    const std::string name = file.path().filename().string();
    if (is_temporary(name)) remove_if_stale(folder, name);
  }
} catch (const std::exception&) {
  // Rubbish stays for the next one to see.
}

}  // namespace preload::artifact
