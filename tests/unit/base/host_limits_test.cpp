// SPDX-License-Identifier: Apache-2.0
#include "base/host_limits.hpp"

#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "support/temp_dir.hpp"

namespace preload {
namespace {

// A machine of 64 GiB with 40 GiB available, as the kernel shows it.
class HostLimits : public testing::Test {
 protected:
  HostLimits() {
    root_.write("proc/meminfo",
                "MemTotal:       67108864 kB\nMemFree:         1000 kB\n"
                "MemAvailable:   41943040 kB\n");
  }
  test::TempDir root_;
};

TEST_F(HostLimits, AreTheMachinesWithoutACgroup) {
  const HostMemory memory = host_memory(root_.path());
  EXPECT_EQ(memory.available_bytes, 40 * kGiB);
  EXPECT_EQ(memory.total_bytes, 64 * kGiB);
  EXPECT_EQ(memory.limited_by, "the machine");
}

TEST_F(HostLimits, FollowTheTightestCgroupAboveUsAndCountItsPageCacheAsFree) {
  root_.write("proc/self/cgroup", "0::/job/step\n");
  root_.write("sys/fs/cgroup/job/memory.max", "8589934592\n");
  root_.write("sys/fs/cgroup/job/memory.current", "7516192768\n");
  root_.write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 3221225472\n");
  root_.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  root_.write("sys/fs/cgroup/job/step/memory.current", "1\n");
  const HostMemory memory = host_memory(root_.path());
  EXPECT_EQ(memory.available_bytes, 4 * kGiB);  // 8 - (7 - 3)
  EXPECT_EQ(memory.total_bytes, 8 * kGiB);
  EXPECT_EQ(memory.limited_by, "cgroup /sys/fs/cgroup/job");
}

TEST_F(HostLimits, ReadTheRootOfAContainerThatHidesItsPath) {
  root_.write("proc/self/cgroup", "0::/somewhere/outside\n");
  root_.write("sys/fs/cgroup/memory.max", "1073741824\n");
  root_.write("sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(host_memory(root_.path()).available_bytes, kGiB);
}

TEST_F(HostLimits, KnowTheFirstVersionOfCgroups) {
  root_.write("proc/self/cgroup", "11:cpu:/a\n7:memory:/docker/1\n0::/x\n");
  root_.write("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2147483648\n");
  root_.write("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "1073741824\n");
  root_.write("sys/fs/cgroup/memory/docker/1/memory.stat", "total_inactive_file 0\n");
  EXPECT_EQ(host_memory(root_.path()).available_bytes, kGiB);
}

TEST_F(HostLimits, AreZeroWhenTheCgroupIsFull) {
  root_.write("proc/self/cgroup", "0::/\n");
  root_.write("sys/fs/cgroup/memory.max", "1000\n");
  root_.write("sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(host_memory(root_.path()).available_bytes, 0U);
}

TEST(HostLimitsOfThisMachine, AreSane) {
  const HostMemory memory = host_memory();
  EXPECT_GT(memory.available_bytes, 0U);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

TEST(HostLimitsWithoutProc, AreAnError) {
  const test::TempDir root;
  EXPECT_THROW(host_memory(root.path()), Error);
}

}  // namespace
}  // namespace preload
