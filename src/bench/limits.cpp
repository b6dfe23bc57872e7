// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "base/fd.hpp"
#include "load/aligned_buffer.hpp"
#include "load/run_threads.hpp"

namespace preload::bench {

namespace {

using Clock = std::chrono::steady_clock;

struct Part {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// O_DIRECT wants whole blocks: the whole buffer is asked for, and the file's end gives less.
void read_part(int fd, const Part& part, std::span<std::byte> buffer, const std::string& path) {
  std::uint64_t done = 0;
  while (done < part.bytes) {
    const auto got =
        static_cast<std::uint64_t>(check_sys(::pread(fd, buffer.data() + done, buffer.size() - done,
                                                     static_cast<off_t>(part.offset + done)),
                                             fmt::format("reading {}", path), Errc::kCheckpoint));
    if (got == 0) {
      throw Error(Errc::kCheckpoint, fmt::format("{} became shorter while it was read", path));
    }
    done += got;
  }
}

double read_gb_per_s(const Checkpoint& checkpoint, int threads, std::uint64_t block, int flags) {
  std::vector<Fd> files;
  std::vector<std::string> paths;
  std::vector<Part> parts;
  std::uint64_t total = 0;
  for (std::size_t f = 0; f < checkpoint.files.size(); ++f) {
    const std::uint64_t bytes = checkpoint.files[f].bytes;
    paths.push_back(checkpoint.directory + "/" + checkpoint.files[f].name);
    files.push_back(open_fd(AT_FDCWD, paths.back(), O_RDONLY | flags, 0,
                            flags == 0 ? Errc::kCheckpoint : Errc::kUsage));
    for (std::uint64_t at = 0; at < bytes; at += block) {
      parts.push_back({f, at, std::min(block, bytes - at)});
    }
    total += bytes;
  }
  std::atomic<std::size_t> cursor{0};
  const auto start = Clock::now();
  run_threads(threads, [&](int, const std::atomic<bool>& stop) {
    AlignedBuffer buffer;
    while (!stop) {
      const std::size_t next = cursor.fetch_add(1);
      if (next >= parts.size()) return;
      const Part& part = parts[next];
      read_part(files[part.file].get(), part, buffer.reserve(block), paths[part.file]);
    }
  });
  const std::chrono::duration<double> took = Clock::now() - start;
  return static_cast<double>(total) / 1e9 / took.count();
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double plain_read_gb_per_s(const Checkpoint& checkpoint, int threads) {
  return read_gb_per_s(checkpoint, threads, kMiB, 0);
}

double direct_read_gb_per_s(const Checkpoint& checkpoint, int threads) {
  return read_gb_per_s(checkpoint, threads, 4 * kMiB, O_DIRECT);
}

int best_direct_read_threads(const Checkpoint& checkpoint, int threads) {
  double best_rate = 0;
  int best = threads;
  for (const int candidate : std::set<int>{4, 8, 16, 32, threads}) {
    const double rate = direct_read_gb_per_s(checkpoint, candidate);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = candidate;
  }
  return best;
}

}  // namespace preload::bench
