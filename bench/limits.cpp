// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <span>

#include "base/bytes.hpp"
#include "base/fd.hpp"
#include "load/aligned_buffer.hpp"
#include "load/run_threads.hpp"

namespace preload::bench {

namespace {

using Clock = std::chrono::steady_clock;

double gb_per_s(std::uint64_t bytes, Clock::time_point since) {
  return static_cast<double>(bytes) / 1e9 /
         std::chrono::duration<double>(Clock::now() - since).count();
}

double read_gb_per_s(const Checkpoint& checkpoint, int threads, std::uint64_t block, int flags) {
  struct Part {
    std::size_t file;
    std::uint64_t offset;
  };
  std::vector<Fd> files;
  std::vector<Part> parts;
  std::uint64_t total = 0;
  for (std::size_t f = 0; f < checkpoint.files.size(); ++f) {
    files.push_back(open_fd(AT_FDCWD, checkpoint.directory + "/" + checkpoint.files[f].name,
                            O_RDONLY | flags, 0, Errc::kCheckpoint));
    for (std::uint64_t at = 0; at < checkpoint.files[f].bytes; at += block)
      parts.push_back({f, at});
    total += checkpoint.files[f].bytes;
  }
  std::atomic<std::size_t> cursor{0};
  const auto start = Clock::now();
  run_threads(threads, [&](int, const std::atomic<bool>& stop) {
    AlignedBuffer buffer;
    while (!stop) {
      const std::size_t next = cursor.fetch_add(1);
      if (next >= parts.size()) return;
      pread_full(files[parts[next].file].get(), buffer.reserve(block), parts[next].offset,
                 "a weight file");
    }
  });
  return gb_per_s(total, start);
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

void drop_page_cache() {
  ::sync();
  const Fd fd = open_fd(AT_FDCWD, "/proc/sys/vm/drop_caches", O_WRONLY, 0, Errc::kUsage);
  write_full(fd.get(), std::as_bytes(std::span("1", 1)), "/proc/sys/vm/drop_caches");
}

double plain_read_gb_per_s(const Checkpoint& checkpoint, int threads) {
  return read_gb_per_s(checkpoint, threads, kMiB, 0);
}

double direct_read_gb_per_s(const Checkpoint& checkpoint, int threads) {
  return read_gb_per_s(checkpoint, threads, 4 * kMiB, O_DIRECT);
}

double memcpy_gb_per_s() {
  std::vector<char> from(512 * kMiB, 1);
  std::vector<char> to(from.size(), 2);
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    rates.push_back(gb_per_s(from.size(), start));
  }
  return median(rates);
}

}  // namespace preload::bench
