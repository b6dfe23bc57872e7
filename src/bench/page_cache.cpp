// SPDX-License-Identifier: Apache-2.0
#include "bench/page_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "base/log.hpp"
#include "bench/limits.hpp"
#include "load/file_system.hpp"

namespace preload::bench {

namespace {

constexpr const char* kDropCaches = "/proc/sys/vm/drop_caches";
constexpr double kNoise = 0.05;

void for_each_file(
    const Checkpoint& checkpoint,
    const std::function<void(const std::string& path, int fd, std::uint64_t bytes)>& visit) {
  for (const SourceFile& file : checkpoint.files) {
    const std::string path = checkpoint.directory + "/" + file.name;
    visit(path, open_fd(AT_FDCWD, path, O_RDONLY, 0, Errc::kCheckpoint).get(), file.bytes);
  }
}

// Of the file's pages. mincore starts no read, unlike a pread that would not wait.
double cached_share(int fd, std::uint64_t bytes, const std::string& path) {
  if (bytes == 0) return 0;
  const Mapping mapping = map_fd(fd, bytes, false, path);
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  check_sys(::mincore(mapping.data(), bytes, pages.data()), "mincore");
  const auto cached = std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; });
  return static_cast<double>(cached) / static_cast<double>(pages.size());
}

}  // namespace

void check_can_be_cold(const Checkpoint& checkpoint) {
  const Fd fd(::open(kDropCaches, O_WRONLY | O_CLOEXEC));
  if (!fd) {
    throw Error(Errc::kUsage,
                fmt::format("--cold drops the page cache before each run, and {} cannot be written "
                            "({}): run it as root outside of a container, or measure without "
                            "--cold",
                            kDropCaches, errno_text(errno)));
  }
  for_each_file(checkpoint, [](const std::string& path, int file, std::uint64_t) {
    if (file_system_kind(file) != FileSystemKind::kMemory) return;
    throw Error(Errc::kUsage,
                fmt::format("--cold: {} lies in memory (tmpfs), which dropping the page cache does "
                            "not empty: copy the checkpoint to a disk, or measure without --cold",
                            path));
  });
}

void drop_page_cache(const Checkpoint& checkpoint) {
  ::sync();
  const Fd fd = open_fd(AT_FDCWD, kDropCaches, O_WRONLY, 0, Errc::kUsage);
  write_full(fd.get(), std::as_bytes(std::span("1", 1)), kDropCaches);
  for_each_file(checkpoint, [](const std::string& path, int file, std::uint64_t bytes) {
    if (cached_share(file, bytes, path) > kNoise) {
      log::warn(
          fmt::format("{} is still in the page cache after dropping it, mapped or locked by "
                      "another process: this run is not cold",
                      path));
    }
  });
}

void fill_page_cache(const Checkpoint& checkpoint, int threads) {
  plain_read_gb_per_s(checkpoint, threads);
  for_each_file(checkpoint, [](const std::string& path, int file, std::uint64_t bytes) {
    if (cached_share(file, bytes, path) < 1 - kNoise) {
      log::warn(
          fmt::format("{} does not stay in the page cache: free host memory, or measure with "
                      "--cold; this run is not hot",
                      path));
    }
  });
}

}  // namespace preload::bench
