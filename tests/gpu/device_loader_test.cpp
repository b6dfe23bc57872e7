// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "gpu/gpu_test.hpp"
#include "load/loader.hpp"
#include "memory/slab.hpp"
#include "unit/load/random_load.hpp"
#include "unit/load/spread_node.hpp"

namespace preload::test {
namespace {

using testing::HasSubstr;

class DeviceLoader : public GpuTest {
 protected:
  static MemoryAccess device_access() {
    return {read_device, write_device, [](void* stream) {
              check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "a test");
            }};
  }

  static void expect_right(const RandomLoad& random, HandleKind kind, LoadOptions options) {
    const auto memory = allocate_slabs(kind, random.plan.slabs.slabs, kDevice);
    for (std::uint32_t slab = 0; slab < random.plan.slabs.slabs.size(); ++slab) {
      // GPU memory is not fresh zeros: what must be zero has to be written.
      check_cuda(cudaMemset(memory->address(slab), 0x77, random.plan.slabs.slabs[slab].bytes),
                 "soiling a slab");
    }
    options.device = kDevice;
    LoadProgress progress;
    const LoadResult result = load_alone(random.plan, random.program, random.checkpoint, *memory,
                                         options, progress, Cancel());
    EXPECT_EQ(progress.bytes, random.op_bytes());
    const auto extents = random.expected_extents();
    for (std::size_t t = 0; t < extents.size(); ++t) {
      const Placement& place = random.plan.slabs.placements[t];
      if (place.bytes == 0) continue;
      ASSERT_TRUE(read_device(memory->address(place.slab) + place.offset, place.bytes) ==
                  extents[t])
          << random.program.tensors[t].name << " differs";
    }
    EXPECT_EQ(result.served, random.expected_served());
    EXPECT_EQ(test::source_hashes(result), random.expected_source());
  }
};

TEST_F(DeviceLoader, GivesTheInterpretersBytesAndHashesForRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    expect_right(RandomLoad(seed), seed % 4 == 0 ? HandleKind::kCudaIpc : HandleKind::kVmm, {});
  }
}

TEST_F(DeviceLoader, GivesTheSameInSmallRingsAndWithAnyThreads) {
  const RandomLoad random(77);
  for (const std::uint64_t ring_bytes : {320 * kKiB, 3 * kMiB, 512 * kMiB}) {
    for (const int threads : {1, 5, 16}) {
      SCOPED_TRACE(testing::Message() << ring_bytes << " " << threads);
      expect_right(random, HandleKind::kVmm, {ring_bytes, threads, 0});
    }
  }
}

// Ranks with memory of their own, which they map from each other's descriptors.
TEST_F(DeviceLoader, HandsOnWhatOtherRanksNeed) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLoad random(seed);
    for (const std::size_t ranks : {2U, 3U}) {
      Node node(random.checkpoint,
                {std::vector<CopyProgram>(ranks, random.program),
                 std::vector<LoadPlan>(ranks, random.plan)},
                HandleKind::kVmm, device_access());
      node.load_spread({.threads = 4, .device = kDevice});
      for (std::size_t i = 0; i < ranks; ++i) node.finish(i);
      node.expect_like_ranks_that_read_alone();
    }
  }
}

TEST_F(DeviceLoader, HandsSlicesOfTheSameRowsOn) {
  LlamaSize size;
  size.hidden = 512;
  size.heads = 8;
  size.kv_heads = 4;
  size.head_dim = 64;
  size.intermediate = 1024;
  const WrittenCheckpoint written(llama_checkpoint(size));
  const ParallelSizes sizes{2, 1, 2};
  Node node(written.checkpoint, plan_ranks(written.checkpoint, sizes, 0, sizes.world()),
            HandleKind::kVmm, device_access());
  node.load_spread({.threads = 2, .device = kDevice});
  for (int i = 0; i < sizes.world(); ++i) node.finish(static_cast<std::size_t>(i));
  node.expect_like_ranks_that_read_alone();
}

TEST_F(DeviceLoader, SendsWhatCannotBeWritten) {
  for (std::uint64_t seed = 11; seed <= 14; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLoad random(seed);
    for (const std::uint32_t per_node : {1U, 2U}) {
      Node node(
          random.checkpoint,
          {std::vector<CopyProgram>(4, random.program), std::vector<LoadPlan>(4, random.plan)},
          HandleKind::kVmm, device_access());
      node.load_spread({.threads = 4, .device = kDevice}, per_node);
      for (std::size_t i = 0; i < 4; ++i) node.finish(i);
      node.expect_like_ranks_that_read_alone();
    }
  }
}

TEST_F(DeviceLoader, LeavesNothingOnTheGpuAfterAFailure) {
  const RandomLoad random(21);
  const auto memory = allocate_slabs(HandleKind::kVmm, random.plan.slabs.slabs, kDevice);
  const auto free_bytes = [] {
    std::size_t free_memory = 0;
    std::size_t total = 0;
    check_cuda(cudaMemGetInfo(&free_memory, &total), "free memory");
    return free_memory;
  };
  LoadProgress progress;
  load_alone(random.plan, random.program, random.checkpoint, *memory, {}, progress, Cancel());
  const std::size_t before = free_bytes();

  Cancel cancel;
  cancel.request({143, "terminated"});
  EXPECT_THROW(
      load_alone(random.plan, random.program, random.checkpoint, *memory, {}, progress, cancel),
      Cancelled);
  EXPECT_EQ(free_bytes(), before);

  random.directory.truncate(random.checkpoint.files[0].name, 100);
  try {
    load_alone(random.plan, random.program, random.checkpoint, *memory, {}, progress, Cancel());
    FAIL() << "a truncated file was loaded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(random.checkpoint.files[0].name));
  }
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace preload::test
