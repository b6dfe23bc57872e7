// SPDX-License-Identifier: Apache-2.0
#include "hook/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::hook {
namespace {

using testing::Contains;
using testing::Not;
using testing::StartsWith;

HookPlace second_of_four() {
  HookPlace place;
  place.rank = 1;
  place.world = 4;
  place.local_rank = 1;
  place.local_world = 2;
  place.master_addr = "10.0.0.1";
  place.master_port = 4711;
  place.socket_dir = "/tmp/s/warmup-1";
  place.visible_devices = "3";
  place.device = "gpu-1";
  place.coords = {1, 0, 0, 1, std::nullopt};
  place.sizes = {2, 1, 2};
  return place;
}

TEST(HookEnvironment, SaysWhatALaunchedTorchProgramIsTold) {
  const auto environment = hook_environment({"RANK=7", "HOME=/home/a"}, second_of_four(), "", {});
  for (const char* entry :
       {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=4711", "PRELOAD_SOCKET_DIR=/tmp/s/warmup-1", "CUDA_VISIBLE_DEVICES=3",
        "HOME=/home/a", "PRELOAD_WARMUP_TP_RANK=1", "PRELOAD_WARMUP_DP_SIZE=2",
        "PRELOAD_WARMUP_DEVICE=gpu-1", "PRELOAD_WARMUP_SCOPE=rank"}) {
    EXPECT_THAT(environment, Contains(entry));
  }
  EXPECT_THAT(environment, Not(Contains("RANK=7")));
  EXPECT_THAT(environment, Not(Contains(StartsWith("PRELOAD_WARMUP_CACHE_DIR="))));
}

TEST(HookEnvironment, KeepsWhatALauncherOrAServiceManagerSaysToTheRankFromIt) {
  for (const char* entry :
       {"OMPI_COMM_WORLD_SIZE=4", "PMIX_RANK=1", "PMI_SIZE=4", "SLURM_PROCID=1", "SLURM_STEP_ID=0",
        "HYDRA_CONTROL_FD=9", "MPI_LOCALRANKID=1", "NOTIFY_SOCKET=/run/notify",
        "WATCHDOG_USEC=1000000", "PRELOAD_WARMUP_TP_RANK=5", "PRELOAD_LAUNCH_ID=00ff"}) {
    EXPECT_THAT(hook_environment({entry}, second_of_four(), "", {}), Not(Contains(entry)));
  }
  for (const char* entry : {"PATH=/bin", "NCCL_DEBUG=INFO", "OMP_NUM_THREADS=4", "EMPTY="}) {
    EXPECT_THAT(hook_environment({entry}, second_of_four(), "", {}), Contains(entry));
  }
}

TEST(HookEnvironment, LeavesTheDevicesAsTheyAreOnHostMemory) {
  HookPlace place = second_of_four();
  place.visible_devices.clear();
  EXPECT_THAT(hook_environment({"CUDA_VISIBLE_DEVICES=5"}, place, "", {}),
              Contains("CUDA_VISIBLE_DEVICES=5"));
}

TEST(HookEnvironment, NamesTheCachesAndTheirDirectory) {
  const std::vector<EngineCache> caches{{"TRITON_CACHE_DIR", "/c/caches/triton"}};
  const auto environment = hook_environment({}, second_of_four(), "/c", caches);
  EXPECT_THAT(environment, Contains("PRELOAD_WARMUP_CACHE_DIR=/c/caches"));
  EXPECT_THAT(environment, Contains("TRITON_CACHE_DIR=/c/caches/triton"));
}

}  // namespace
}  // namespace preload::hook
