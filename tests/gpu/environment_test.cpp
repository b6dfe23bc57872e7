// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "artifact/local_environment.hpp"
#include "gpu/gpu_test.hpp"
#include "memory/device.hpp"

namespace preload::test {
namespace {

using testing::MatchesRegex;

class GpuEnvironment : public GpuTest {};

TEST_F(GpuEnvironment, SaysWhatCompiledCodeAndTuningDependOn) {
  const Device device = visible_devices().at(0);
  artifact::Environment here = artifact::local_environment(device.uuid);
  EXPECT_EQ(here["gpu"], device.name);
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, kDevice), "properties");
  EXPECT_EQ(here["compute_capability"],
            std::to_string(properties.major) + "." + std::to_string(properties.minor));
  int cuda = 0;
  check_cuda(cudaDriverGetVersion(&cuda), "the driver's version");
  EXPECT_EQ(here["cuda"], std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10));
  EXPECT_THAT(here["driver"], MatchesRegex("[0-9]+\\.[0-9.]+"));
  EXPECT_EQ(here.size(), 4U);
}

}  // namespace
}  // namespace preload::test
