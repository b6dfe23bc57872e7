// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/bytes.hpp"
#include "base/fd.hpp"
#include "load/run_threads.hpp"

namespace preload::bench {

namespace {

using Clock = std::chrono::steady_clock;

double gb_per_s(std::uint64_t bytes, Clock::time_point since) {
  return static_cast<double>(bytes) / 1e9 /
         std::chrono::duration<double>(Clock::now() - since).count();
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

double plain_read_gb_per_s(const Checkpoint& checkpoint, int threads) {
  struct Part {
    std::size_t file;
    std::uint64_t offset;
  };
  std::vector<Fd> files;
  std::vector<Part> parts;
  std::uint64_t total = 0;
  for (std::size_t f = 0; f < checkpoint.files.size(); ++f) {
    files.push_back(open_fd(AT_FDCWD, checkpoint.directory + "/" + checkpoint.files[f].name,
                            O_RDONLY, 0, Errc::kCheckpoint));
    for (std::uint64_t at = 0; at < checkpoint.files[f].bytes; at += kMiB) parts.push_back({f, at});
    total += checkpoint.files[f].bytes;
  }
  std::atomic<std::size_t> cursor{0};
  const auto start = Clock::now();
  run_threads(threads, [&](int, const std::atomic<bool>& stop) {
    std::vector<std::byte> buffer(kMiB);
    while (!stop) {
      const std::size_t next = cursor.fetch_add(1);
      if (next >= parts.size()) return;
      pread_full(files[parts[next].file].get(), buffer, parts[next].offset, "a weight file");
    }
  });
  return gb_per_s(total, start);
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
