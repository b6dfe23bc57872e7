// SPDX-License-Identifier: Apache-2.0
#include "base/fd.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

namespace preload {
namespace {

// For messages; "?" where that cannot be told.
std::string path_of(int directory) {
  std::error_code failed;
  const auto path = directory == AT_FDCWD ? std::filesystem::current_path(failed)
                                          : std::filesystem::read_symlink(
                                                fmt::format("/proc/self/fd/{}", directory), failed);
  return failed ? "?" : path.string();
}

}  // namespace

void FdTraits::close(int fd) noexcept { ::close(fd); }

Mapping::Mapping(Mapping&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (address_ != nullptr) ::munmap(address_, bytes_);
    address_ = std::exchange(other.address_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (address_ != nullptr) ::munmap(address_, bytes_);
}

std::string errno_text(int error) {
  const char* name = ::strerrorname_np(error);
  return fmt::format("{} ({})", ::strerrordesc_np(error) ? ::strerrordesc_np(error) : "error",
                     name != nullptr ? name : std::to_string(error));
}

long check_sys(long result, std::string_view what, Errc code, std::source_location where) {
  if (result < 0) throw Error(code, fmt::format("{}: {}", what, errno_text(errno)), where);
  return result;
}

Fd open_fd(int directory, const std::string& path, int flags, unsigned mode, Errc code) {
  const int fd = ::openat(directory, path.c_str(), flags | O_CLOEXEC, mode);
  check_sys(fd, fmt::format("cannot open '{}'", path), code);
  return Fd(fd);
}

Mapping map_fd(int fd, std::size_t bytes, bool writable, std::string_view what) {
  if (bytes == 0) return {};
  void* address =
      ::mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    throw Error(Errc::kMemory,
                fmt::format("cannot map {} ({} bytes): {}", what, bytes, errno_text(errno)));
  }
  return {address, bytes};
}

Fd duplicate(int fd) {
  return Fd(static_cast<int>(check_sys(::fcntl(fd, F_DUPFD_CLOEXEC, 0), "cannot duplicate an fd")));
}

std::size_t pread_full(int fd, std::span<std::byte> out, std::uint64_t offset,
                       std::string_view what) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw Error(Errc::kCheckpoint,
                  fmt::format("cannot read {} at offset {}: {}: mend the disk or file system that "
                              "holds it, or restore the file elsewhere, and start again",
                              what, offset + done, errno_text(errno)));
    }
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void write_full(int fd, std::span<const std::byte> bytes, std::string_view what) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    check_sys(n, fmt::format("cannot write {}", what));
    done += static_cast<std::size_t>(n);
  }
}

std::string read_all(int fd, std::string_view what, std::size_t limit_bytes) {
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    check_sys(n, fmt::format("cannot read {}", what));
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
    if (text.size() > limit_bytes) {
      throw Error(Errc::kInternal, fmt::format("{} is larger than {} bytes", what, limit_bytes));
    }
  }
}

std::optional<std::string> read_file_at(int directory, const std::string& name,
                                        std::size_t limit_bytes) {
  const int raw = ::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (raw < 0 && errno == ENOENT) return std::nullopt;
  check_sys(raw, fmt::format("cannot open '{}'", name));
  const Fd fd(raw);
  return read_all(fd.get(), fmt::format("'{}'", name), limit_bytes);
}

void write_file_at(int directory, const std::string& name, std::string_view text) {
  // Hosts and containers that share the directory have the same process ids.
  std::random_device random;
  const std::string temporary = fmt::format(".{}.{:08x}{:08x}.tmp", name, random(), random());
  Fd fd = open_fd(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600,
                  Errc::kInternal);
  try {
    write_full(fd.get(), std::as_bytes(std::span(text)), fmt::format("'{}'", temporary));
    check_sys(::fsync(fd.get()), fmt::format("cannot sync '{}'", temporary));
    const int renamed = ::renameat(directory, temporary.c_str(), directory, name.c_str());
    if (renamed != 0 && errno == EISDIR)
      throw Error(Errc::kUsage,
                  fmt::format("'{}/{}' is a directory where a file is to be written: remove it",
                              path_of(directory), name));
    check_sys(renamed, fmt::format("cannot rename '{}' to '{}'", temporary, name));
  } catch (...) {
    ::unlinkat(directory, temporary.c_str(), 0);
    throw;
  }
}

namespace {
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
}

Fd make_memfd(const std::string& name, std::uint64_t bytes) {
  const int raw = ::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  check_sys(raw, "cannot create a memfd", Errc::kMemory);
  Fd fd(raw);
  check_sys(::ftruncate(fd.get(), static_cast<off_t>(bytes)),
            fmt::format("cannot size a memfd to {} bytes", bytes), Errc::kMemory);
  return fd;
}

void seal_memfd(int fd) { check_sys(::fcntl(fd, F_ADD_SEALS, kAllSeals), "cannot seal a memfd"); }

bool is_sealed(int fd) noexcept {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kAllSeals) == kAllSeals;
}

}  // namespace preload
