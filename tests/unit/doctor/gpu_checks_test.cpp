// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/bytes.hpp"

namespace preload::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kWhole = "gpu-11111111-1111-1111-1111-111111111111";
const std::string kCut = "gpu-22222222-2222-2222-2222-222222222222";
const std::string kInstance = "mig-33333333-3333-3333-3333-333333333333";

// A machine of two GPUs, both visible.
GpuFacts two_gpus() {
  GpuFacts facts;
  facts.device_files = true;
  facts.cuda_version = 12040;
  facts.nvml.driver_version = "550.54.15";
  for (const char* uuid : {"gpu-a", "gpu-b"}) {
    facts.visible.push_back(uuid);
    NvmlGpu gpu;
    gpu.uuid = uuid;
    gpu.device.total_bytes = 80 * kGiB;
    gpu.device.free_bytes = 79 * kGiB;
    facts.nvml.gpus.push_back(gpu);
  }
  return facts;
}

Variables visible(const std::string& list) {
  return Variables::of({{"CUDA_VISIBLE_DEVICES", list}});
}

std::string any_process(unsigned pid) { return "pid " + std::to_string(pid) + " (python3, bob)"; }

GpuFacts of_fake(const char* mode) {
  ::setenv("FAKE_NVIDIA", mode, 1);
  GpuFacts facts = gather_gpu_facts({PRELOAD_FAKE_NVIDIA, PRELOAD_FAKE_NVIDIA, "/dev/null"});
  ::unsetenv("FAKE_NVIDIA");
  return facts;
}

TEST(GpuFacts, AreReadFromTheDriversLibraries) {
  const GpuFacts facts = of_fake("");
  EXPECT_TRUE(facts.device_files);
  EXPECT_EQ(facts.cuda_problem, "");
  EXPECT_EQ(facts.cuda_version, 12040);
  EXPECT_THAT(facts.visible, ElementsAre(kWhole, kInstance));
  EXPECT_EQ(facts.nvml.driver_version, "550.54.15");
  ASSERT_EQ(facts.nvml.gpus.size(), 2U);
  EXPECT_EQ(facts.nvml.gpus[0].uuid, kWhole);
  EXPECT_EQ(facts.nvml.gpus[1].uuid, kCut);
  EXPECT_EQ(facts.nvml.gpus[0].compute_mode, 3);
  EXPECT_FALSE(facts.nvml.gpus[0].mig);
  EXPECT_TRUE(facts.nvml.gpus[1].mig);
  EXPECT_EQ(facts.nvml.gpus[0].device.free_bytes, 40U);
  const auto& processes = facts.nvml.gpus[0].device.processes;
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].pid, 4242U);
  EXPECT_EQ(processes[0].used_bytes, 50U);
  EXPECT_FALSE(processes[1].used_bytes);
}

TEST(GpuFacts, TellADriverThatFailsFromOneThatShowsNoGpu) {
  EXPECT_THAT(of_fake("broken").cuda_problem, HasSubstr("a fake error (999)"));
  EXPECT_EQ(of_fake("hidden").cuda_problem, "");
  EXPECT_TRUE(of_fake("hidden").visible.empty());
  EXPECT_TRUE(of_fake("mismatch").nvml.mismatch);
  const GpuFacts none = gather_gpu_facts({"/no/cuda.so", "/no/nvml.so", "/no/nvidiactl"});
  EXPECT_THAT(none.cuda_problem, HasSubstr("/no/cuda.so"));
  EXPECT_FALSE(none.device_files);
}

TEST(DriverCheck, IsRightWithoutAnyDriverAndWithANewOne) {
  GpuFacts none;
  none.cuda_problem = "libcuda.so.1 is not found";
  EXPECT_EQ(check_driver(none, 12040).grade, Grade::kOk);
  EXPECT_EQ(check_driver(two_gpus(), 12040).grade, Grade::kOk);
  EXPECT_EQ(check_driver(two_gpus(), 12080).grade, Grade::kOk);  // minor versions are compatible
}

TEST(DriverCheck, RefusesADriverThatIsOlderThanTheToolkit) {
  const Check check = check_driver(two_gpus(), 13000);
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_EQ(check.code, Errc::kDevice);
  EXPECT_THAT(check.text, HasSubstr("12.4"));
  EXPECT_THAT(check.text, HasSubstr("13.0"));
}

TEST(DriverCheck, RefusesAContainerWithoutTheDriversLibraries) {
  GpuFacts facts;
  facts.device_files = true;
  facts.cuda_problem = "libcuda.so.1 is not found";
  const Check check = check_driver(facts, 12040);
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_THAT(check.remedy, HasSubstr("--nv"));
}

TEST(DriverCheck, RefusesADriverWhoseHalvesDiffer) {
  GpuFacts facts = two_gpus();
  facts.nvml.mismatch = true;
  EXPECT_EQ(check_driver(facts, 12040).grade, Grade::kFail);
}

TEST(DriverCheck, WarnsOfABuildWithoutCudaBesideAGpu) {
  EXPECT_EQ(check_driver(two_gpus(), 0).grade, Grade::kWarn);
}

TEST(VisibleGpus, AreRightByIndexByUuidAndUnset) {
  EXPECT_EQ(check_visible_gpus(two_gpus(), {}).grade, Grade::kOk);
  EXPECT_EQ(check_visible_gpus(two_gpus(), visible("1,0")).grade, Grade::kOk);
  EXPECT_EQ(check_visible_gpus(two_gpus(), visible("GPU-a, GPU-b")).grade, Grade::kOk);
}

TEST(VisibleGpus, ThatAreNamedAndNotShownAreRefused) {
  const Check check = check_visible_gpus(two_gpus(), visible("0,1,7"));
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_THAT(check.text, HasSubstr("names 3 GPUs, of which CUDA shows 2"));
}

TEST(VisibleGpus, ThatAreAllHiddenAreWarnedOf) {
  GpuFacts facts = two_gpus();
  facts.visible.clear();
  EXPECT_EQ(check_visible_gpus(facts, visible("")).grade, Grade::kWarn);
  EXPECT_EQ(check_visible_gpus(facts, visible("-1")).grade, Grade::kWarn);
  EXPECT_EQ(check_visible_gpus(GpuFacts{}, visible("")).grade, Grade::kOk);
}

TEST(VisibleGpus, OfMigWithoutAnInstanceAreRefused) {
  GpuFacts facts = two_gpus();
  facts.visible.clear();
  facts.nvml.gpus[0].mig = true;
  const Check check = check_visible_gpus(facts, {});
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_THAT(check.remedy, HasSubstr("nvidia-smi mig"));
}

TEST(GpuBinding, NamesTheGpuThatTheRankWouldTake) {
  Launcher launcher;
  EXPECT_THAT(check_binding(two_gpus(), launcher).text, HasSubstr("gpu-a"));
  launcher = {Launcher::Kind::kPmix, 2, 1, 1, ""};
  EXPECT_THAT(check_binding(two_gpus(), launcher).text, HasSubstr("gpu-b"));
  GpuFacts own = two_gpus();
  own.visible = {"gpu-b"};  // one visible GPU a task
  launcher.local_rank = 5;
  EXPECT_EQ(check_binding(own, launcher).grade, Grade::kOk);
  EXPECT_THAT(check_binding(own, launcher).text, HasSubstr("gpu-b"));
}

TEST(GpuBinding, RefusesMoreRanksThanGpus) {
  const Launcher launcher{Launcher::Kind::kOpenMpi, 4, 2, 2, ""};
  const Check check = check_binding(two_gpus(), launcher);
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_EQ(check.code, Errc::kLauncher);
  EXPECT_THAT(check.remedy, HasSubstr("--ntasks-per-node=2"));
}

TEST(ComputeMode, MustLetSeveralProcessesIn) {
  GpuFacts facts = two_gpus();
  EXPECT_EQ(check_compute_mode(facts, {}).grade, Grade::kOk);
  facts.nvml.gpus[1].compute_mode = 3;
  const Check exclusive = check_compute_mode(facts, {});
  EXPECT_EQ(exclusive.grade, Grade::kWarn);
  EXPECT_THAT(exclusive.text, HasSubstr("gpu-b"));
  facts.nvml.gpus[0].compute_mode = 2;
  EXPECT_EQ(check_compute_mode(facts, {}).grade, Grade::kFail);
  facts.visible = {"gpu-b"};  // what others cannot use is of no interest
  EXPECT_EQ(check_compute_mode(facts, {}).grade, Grade::kWarn);
  const Variables mps = Variables::of({{"CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps"}});
  EXPECT_EQ(check_compute_mode(two_gpus(), mps).grade, Grade::kWarn);
}

TEST(GpuMemory, ThatDoesNotHoldTheWeightsIsRefusedWithWhoHoldsIt) {
  GpuFacts facts = two_gpus();
  facts.nvml.gpus[1].device.free_bytes = 8 * kGiB;
  facts.nvml.gpus[1].device.processes = {{77, 72 * kGiB}};
  const Checks checks = check_gpu_memory(facts, 20 * kGiB, any_process);
  ASSERT_EQ(checks.size(), 2U);
  EXPECT_EQ(checks[0].grade, Grade::kOk);
  EXPECT_EQ(checks[1].grade, Grade::kFail);
  EXPECT_EQ(checks[1].code, Errc::kMemory);
  EXPECT_THAT(checks[1].text, HasSubstr("8.00 GiB of 80.00 GiB free"));
  EXPECT_THAT(checks[1].text, HasSubstr("pid 77 (python3, bob) 72.00 GiB"));
  EXPECT_EQ(check_gpu_memory(facts, std::nullopt, any_process)[1].grade, Grade::kOk);
}

TEST(GpuMemory, ThatNvmlDoesNotTellIsSaid) {
  GpuFacts facts = two_gpus();
  facts.nvml.gpus.clear();
  EXPECT_EQ(check_gpu_memory(facts, 1, any_process)[0].grade, Grade::kWarn);
}

TEST(GpuMemory, IsHeldByProcessesWithNameAndUser) {
  const std::string own = describe_process(static_cast<unsigned>(::getpid()));
  EXPECT_THAT(own, HasSubstr("pid " + std::to_string(::getpid())));
  EXPECT_THAT(own, HasSubstr("uid " + std::to_string(::getuid())));
  EXPECT_THAT(describe_process(4194305), HasSubstr("not to be seen"));
}

}  // namespace
}  // namespace preload::doctor
