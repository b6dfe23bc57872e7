// SPDX-License-Identifier: Apache-2.0
#include "run/cpu_binding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "support/temp_dir.hpp"

namespace preload::run {
namespace {

TEST(CpuList, ReadsRangesAndSingleCpus) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (CpuSet{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5"), CpuSet{5});
  EXPECT_EQ(parse_cpu_list(""), CpuSet{});
}

TEST(CpuList, RefusesWhatTheKernelWouldNotWrite) {
  for (const char* text : {"a", "3-", "-1", "4-2", "1;2", "0-99999999", "1,,2"}) {
    EXPECT_FALSE(parse_cpu_list(text)) << text;
  }
}

TEST(NodeCpus, FollowsTheGpuToItsNumaNode) {
  const test::TempDir fake;
  fake.write("proc/driver/nvidia/gpus/0000:19:00.0/information", "GPU UUID: \t GPU-AAAA");
  fake.write("proc/driver/nvidia/gpus/0000:9d:00.0/information", "GPU UUID: \t GPU-BBBB");
  fake.write("sys/bus/pci/devices/0000:19:00.0/numa_node", "0");
  fake.write("sys/bus/pci/devices/0000:9d:00.0/numa_node", "1");
  fake.write("sys/devices/system/node/node0/cpulist", "4000-4003");
  fake.write("sys/devices/system/node/node1/cpulist", "4004-4007");
  EXPECT_EQ(node_cpus("gpu-bbbb", fake / ""), (CpuSet{4004, 4005, 4006, 4007}));
}

TEST(NodeCpus, TakesTheNodeOfTheRunningCpuForHostMemory) {
  const test::TempDir fake;
  fake.write("sys/devices/system/node/node0/cpulist", "4000-4003");
  fake.write("sys/devices/system/node/node1/cpulist", "0-1023");
  EXPECT_EQ(node_cpus("host:0", fake / "").size(), 1024U);
}

TEST(NodeCpus, TakesAllOnlineCpusWhereNodesAreUnknown) {
  const test::TempDir fake;
  fake.write("sys/devices/system/cpu/online", "0-1");
  EXPECT_EQ(node_cpus("host:0", fake / ""), (CpuSet{0, 1}));
}

TEST(CpuBinding, WidensANarrowBindingAndRestoresIt) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this machine gives the test one CPU only";
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  cpu_set_t now;
  {
    const CpuBinding binding("host:0");
    sched_getaffinity(0, sizeof now, &now);
    EXPECT_GT(CPU_COUNT(&now), 1);
    EXPECT_THAT(binding.account(), testing::HasSubstr("widened from 1 to"));
  }
  {
    const CpuBinding binding({"host:0", "host:1"}, "the warm-up");
    sched_getaffinity(0, sizeof now, &now);
    EXPECT_GT(CPU_COUNT(&now), 1);
    EXPECT_THAT(binding.account(), testing::EndsWith("CPUs for the warm-up"));
  }
  sched_getaffinity(0, sizeof now, &now);
  EXPECT_EQ(CPU_COUNT(&now), 1);
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace preload::run
