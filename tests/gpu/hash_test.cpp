// SPDX-License-Identifier: Apache-2.0
#include "hash.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/hash.hpp"
#include "gpu/gpu_test.hpp"

namespace preload::test {
namespace {

Hash128 read_sum(const DeviceMemory& sum) {
  Hash128 hash;
  std::memcpy(&hash, read_device(sum.get(), sizeof hash).data(), sizeof hash);
  return hash;
}

DeviceMemory zero_sum() {
  DeviceMemory sum = allocate_device(sizeof(Hash128), "a sum");
  check_cuda(cudaMemset(sum.get(), 0, sizeof(Hash128)), "clearing a sum");
  return sum;
}

class HashKernel : public GpuTest {
 protected:
  // The kernel's hash of rows of `bytes` that begin at its first byte.
  static Hash128 on_gpu(const OnDevice& memory, kernels::HashRegion region) {
    const DeviceMemory sum = zero_sum();
    region.data = memory.data();
    check_cuda(static_cast<cudaError_t>(
                   kernels::hash_rows(region, static_cast<std::uint64_t*>(sum.get()), nullptr)),
               "launching the hash");
    return read_sum(sum);
  }
  static Hash128 on_host(const std::string& bytes, const kernels::HashRegion& region) {
    return hash_rows(reinterpret_cast<const std::byte*>(bytes.data()), region.rows,
                     region.row_bytes, region.memory_stride, region.offset_bytes,
                     region.index_stride);
  }
};

TEST_F(HashKernel, EqualsTheHostForEveryAlignmentOfShortRuns) {
  for (std::uint64_t lead = 0; lead < 8; ++lead) {
    for (std::uint64_t offset = 0; offset < 9; ++offset) {
      for (std::uint64_t length = 1; length < 26; ++length) {
        const std::string bytes = random_bytes(lead * 1000 + offset * 100 + length, length);
        const OnDevice memory(bytes, lead);
        const kernels::HashRegion region{nullptr, 1, length, 0, offset, 0};
        ASSERT_EQ(on_gpu(memory, region), on_host(bytes, region))
            << lead << " " << offset << " " << length;
      }
    }
  }
}

TEST_F(HashKernel, EqualsTheHostForRandomRows) {
  std::mt19937_64 random(3);
  const auto pick = [&](std::uint64_t low, std::uint64_t high) {
    return low + random() % (high - low + 1);
  };
  for (int i = 0; i < 400; ++i) {
    kernels::HashRegion region;
    region.rows = pick(1, 300);
    region.row_bytes = pick(1, i % 2 == 0 ? 40 : 3000);
    region.memory_stride = region.row_bytes + (pick(0, 1) == 0 ? 0 : pick(1, 100));
    region.offset_bytes = pick(0, 1ULL << 40);
    region.index_stride = region.row_bytes + (pick(0, 1) == 0 ? 0 : pick(1, 1ULL << 33));
    const std::string bytes =
        random_bytes(random(), (region.rows - 1) * region.memory_stride + region.row_bytes);
    const OnDevice memory(bytes, pick(0, 15));
    ASSERT_EQ(on_gpu(memory, region), on_host(bytes, region)) << "case " << i;
  }
}

TEST_F(HashKernel, EqualsTheHostForALongRun) {
  for (const std::uint64_t offset : {0ULL, 3ULL, 1ULL << 36}) {
    for (const std::uint64_t lead : {0, 3}) {
      const std::string bytes = random_bytes(9 + offset, 32 * kMiB + 5);
      const OnDevice memory(bytes, lead);
      const kernels::HashRegion region{nullptr, 1, bytes.size(), 0, offset, 0};
      ASSERT_EQ(on_gpu(memory, region), on_host(bytes, region));
    }
  }
}

TEST_F(HashKernel, AddsUpOverPartsOnManyStreams) {
  constexpr std::uint64_t kParts = 64;
  const std::string bytes = random_bytes(4, kParts * 100003);
  const OnDevice memory(bytes);
  const DeviceMemory sum = zero_sum();
  {
    std::vector<Stream> streams;
    for (int i = 0; i < 8; ++i) streams.push_back(make_stream());
    for (std::uint64_t part = 0; part < kParts; ++part) {
      const kernels::HashRegion region{
          memory.data() + part * 100003, 1, 100003, 0, part * 100003, 0};
      check_cuda(static_cast<cudaError_t>(kernels::hash_rows(region,
                                                             static_cast<std::uint64_t*>(sum.get()),
                                                             streams[part % streams.size()].get())),
                 "launching the hash");
    }
    for (const Stream& stream : streams) check_cuda(cudaStreamSynchronize(stream.get()), "hashing");
  }
  EXPECT_EQ(read_sum(sum), hash_bytes(std::as_bytes(std::span(bytes))));
}

// GB/s of the region's bytes: median of nine after one warm-up.
double throughput(const kernels::HashRegion& region) {
  const DeviceMemory sum = zero_sum();
  const Stream stream = make_stream();
  cudaEvent_t raw[2] = {nullptr, nullptr};
  for (cudaEvent_t& event : raw) check_cuda(cudaEventCreate(&event), "an event");
  const Event begin(raw[0]);
  const Event end(raw[1]);
  std::vector<double> rates;
  for (int i = 0; i < 10; ++i) {
    check_cuda(cudaEventRecord(begin.get(), stream.get()), "timing");
    check_cuda(static_cast<cudaError_t>(kernels::hash_rows(
                   region, static_cast<std::uint64_t*>(sum.get()), stream.get())),
               "hashing");
    check_cuda(cudaEventRecord(end.get(), stream.get()), "timing");
    check_cuda(cudaEventSynchronize(end.get()), "hashing");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
    if (i > 0) rates.push_back(static_cast<double>(region.rows * region.row_bytes) / ms / 1e6);
  }
  std::nth_element(rates.begin(), rates.begin() + 4, rates.end());
  return rates[4];
}

TEST_F(HashKernel, RunsAtFourHundredGigabytesASecond) {
  constexpr std::uint64_t kBytes = 2 * kGiB;
  const DeviceMemory memory = allocate_device(kBytes, "memory to hash");
  check_cuda(cudaMemset(memory.get(), 0x5a, kBytes), "filling");
  const double run = throughput({memory.get(), 1, kBytes, 0, 0, 0});
  // A column slice of 4096 bytes in rows of 16384, and one that begins inside a word.
  const double rows = throughput({memory.get(), kBytes / 4096, 4096, 4096, 8192, 16384});
  const double odd = throughput({memory.get(), kBytes / 4098, 4098, 4098, 2, 16386});
  std::printf("hash: %.0f GB/s in one run, %.0f in rows, %.0f in unaligned rows\n", run, rows, odd);
  EXPECT_GE(run, 400);
  EXPECT_GE(rows, 400);
}

}  // namespace
}  // namespace preload::test
