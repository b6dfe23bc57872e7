// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "bench/limits.hpp"
#include "hash_limits.hpp"
#include "memory/device.hpp"

namespace {

using namespace preload;

double memcpy_gb_per_s() {
  const std::vector<char> from(512 * kMiB, 1);
  std::vector<char> to(from.size(), 2);
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(from.size()) / 1e9 / took.count());
  }
  return bench::median(rates);
}

double host_hash_gb_per_s() {
  const std::vector<std::byte> bytes(512 * kMiB, std::byte{0x5a});
  std::vector<double> rates;
  Hash128 sum;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    sum += hash_bytes(std::span(bytes), static_cast<std::uint64_t>(i) * bytes.size());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(bytes.size()) / 1e9 / took.count());
  }
  // Printed, so that the work cannot be left out.
  fmt::print(stderr, "check {}\n", to_hex(sum));
  return bench::median(rates);
}

void line(const char* what, double rate, double target, const char* beside, double limit) {
  fmt::print("{:<10} {:8.1f} GB/s   target {:5.0f}   {} {:.1f} GB/s, ratio {:.2f}\n", what, rate,
             target, beside, limit, rate / limit);
}

}  // namespace

int main() {
  try {
    line("host core", host_hash_gb_per_s(), 5, "memcpy", memcpy_gb_per_s());
#ifdef PRELOAD_HAVE_CUDA
    if (visible_device_count() > 0) {
      line("GPU", bench::gpu_hash_gb_per_s(0), 400, "device copy", bench::device_read_gb_per_s(0));
      return 0;
    }
#endif
    fmt::print("GPU        not measured: {}\n", no_devices_reason());
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "hash_bench: {}\n", error.what());
    return 1;
  }
}
