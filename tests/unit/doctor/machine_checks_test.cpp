// SPDX-License-Identifier: Apache-2.0
#include "doctor/machine_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/bytes.hpp"
#include "unit/serve/temp_dir.hpp"

namespace preload::doctor {
namespace {

using testing::HasSubstr;

MachineFacts good() {
  MachineFacts facts;
  facts.descriptors = facts.most_descriptors = 65536;
  facts.locked_bytes = facts.address_bytes = facts.file_bytes = MachineFacts::kUnlimited;
  facts.cpus = facts.online_cpus = 64;
  facts.memory = {200 * kGiB, 256 * kGiB, "the machine"};
  facts.shm_free_bytes = 8 * kGiB;
  facts.infiniband = true;
  return facts;
}

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(MachineChecks, AreRightOnAGoodMachine) {
  EXPECT_EQ(check_descriptors(good()).grade, Grade::kOk);
  EXPECT_EQ(check_limits(good(), true).grade, Grade::kOk);
  EXPECT_EQ(check_cpus(good(), 8).grade, Grade::kOk);
  EXPECT_EQ(check_host_memory(good(), 100 * kGiB).grade, Grade::kOk);
  EXPECT_EQ(check_shared_memory(good(), true).grade, Grade::kOk);
}

TEST(MachineChecks, WarnOfFewDescriptors) {
  MachineFacts facts = good();
  facts.descriptors = 256;
  EXPECT_EQ(check_descriptors(facts).grade, Grade::kOk) << "a daemon raises it to the hard limit";
  facts.most_descriptors = 256;
  EXPECT_EQ(check_descriptors(facts).grade, Grade::kWarn);
  EXPECT_THAT(check_descriptors(facts).remedy, HasSubstr("ulimit -n"));
}

TEST(MachineChecks, RefuseAnAddressSpaceThatCudaDoesNotFitInto) {
  MachineFacts facts = good();
  facts.address_bytes = 64 * kGiB;
  EXPECT_EQ(check_limits(facts, true).grade, Grade::kFail);
  EXPECT_EQ(check_limits(facts, true).code, Errc::kMemory);
  EXPECT_EQ(check_limits(facts, false).grade, Grade::kOk);
}

TEST(MachineChecks, WarnOfLittleLockedMemoryWhereThereIsInfiniBand) {
  MachineFacts facts = good();
  facts.locked_bytes = 64 * kKiB;
  EXPECT_EQ(check_limits(facts, false).grade, Grade::kWarn);
  EXPECT_THAT(check_limits(facts, false).text, HasSubstr("64.00 KiB"));
  facts.infiniband = false;
  EXPECT_EQ(check_limits(facts, false).grade, Grade::kOk);
}

TEST(MachineChecks, WarnOfALimitOfFileSizes) {
  MachineFacts facts = good();
  facts.file_bytes = kGiB;
  EXPECT_EQ(check_limits(facts, false).grade, Grade::kWarn);
}

TEST(MachineChecks, WarnOfARankThatIsBoundToOneCore) {
  MachineFacts facts = good();
  facts.cpus = 1;
  EXPECT_EQ(check_cpus(facts, 1).grade, Grade::kWarn);
  facts.online_cpus = 1;  // no more are there
  EXPECT_EQ(check_cpus(facts, 1).grade, Grade::kOk);
}

TEST(MachineChecks, WarnOfATimeQuotaThatIsLittleForTheRanks) {
  MachineFacts facts = good();
  facts.cpu_quota = 8;
  EXPECT_EQ(check_cpus(facts, 1).grade, Grade::kOk);
  EXPECT_EQ(check_cpus(facts, 8).grade, Grade::kWarn);
  EXPECT_THAT(check_cpus(facts, 8).text, HasSubstr("time for 1.0"));
}

TEST(MachineChecks, RefuseHostMemoryThatDoesNotHoldTheWeights) {
  MachineFacts facts = good();
  facts.memory = {10 * kGiB, 16 * kGiB, "cgroup /sys/fs/cgroup/job"};
  const Check check = check_host_memory(facts, 20 * kGiB);
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_EQ(check.code, Errc::kMemory);
  EXPECT_THAT(check.text, HasSubstr("cgroup /sys/fs/cgroup/job"));
  EXPECT_EQ(check_host_memory(facts, std::nullopt).grade, Grade::kOk);
  facts.memory.available_bytes = 600 * kMiB;
  EXPECT_EQ(check_host_memory(facts, std::nullopt).grade, Grade::kWarn);
}

TEST(MachineChecks, WarnWithoutSharedMemoryAndOfLittle) {
  MachineFacts facts = good();
  facts.shm_free_bytes = 64 * kMiB;
  EXPECT_EQ(check_shared_memory(facts, true).grade, Grade::kWarn);
  EXPECT_EQ(check_shared_memory(facts, false).grade, Grade::kOk);
  facts.shm_free_bytes.reset();
  EXPECT_EQ(check_shared_memory(facts, false).grade, Grade::kWarn);
}

TEST(MachineFacts, AreReadFromTheSystem) {
  const TempDir temp;
  put(temp.file("proc/meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n");
  put(temp.file("proc/self/cgroup"), "0::/job/step\n");
  put(temp.file("sys/fs/cgroup/job/cpu.max"), "150000 100000\n");
  put(temp.file("sys/fs/cgroup/job/step/cpu.max"), "max 100000\n");
  put(temp.file("sys/class/infiniband/mlx5_0/ports"), "");
  const MachineFacts facts = gather_machine_facts(temp.path());
  EXPECT_EQ(facts.memory.available_bytes, 512 * kMiB);
  ASSERT_TRUE(facts.cpu_quota);
  EXPECT_DOUBLE_EQ(*facts.cpu_quota, 1.5);
  EXPECT_TRUE(facts.infiniband);
  EXPECT_FALSE(facts.shm_free_bytes);
  EXPECT_GT(facts.cpus, 0);
  EXPECT_GE(facts.most_descriptors, facts.descriptors);
}

}  // namespace
}  // namespace preload::doctor
