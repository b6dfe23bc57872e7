// SPDX-License-Identifier: Apache-2.0
#include "artifact/environment.hpp"

#include <gtest/gtest.h>

#include "artifact/local_environment.hpp"
#include "support/temp_dir.hpp"
#include "unit/artifact/log_lines.hpp"

namespace preload::artifact {
namespace {

TEST(ArtifactEnvironment, DifferencesNameFieldsWithBothValues) {
  const Environment stored{{"driver", "570.86"}, {"gpu", "NVIDIA H200"}, {"nccl", "2.28.3"}};
  const Environment here{{"cuda", "13.0"}, {"driver", "580.95"}, {"gpu", "NVIDIA H200"}};
  EXPECT_EQ(differences(stored, here),
            "cuda unknown (13.0 here), driver 570.86 (580.95 here), nccl 2.28.3 (unknown here)");
  EXPECT_EQ(differences(stored, stored), "");
}

TEST(ArtifactEnvironment, TheDigestIsOfTheCanonicalJson) {
  // printf '{"driver":"580","gpu":"H200"}' | sha256sum
  EXPECT_EQ(environment_digest({{"gpu", "H200"}, {"driver", "580"}}),
            "50860ff1d51ea45bc835220ae43bb71631db97cdf9ee35f00c027cee869611d6");
}

TEST(ArtifactEnvironment, WhatNobodyKnowsEqualsNothing) {
  const Environment blind{{"gpu", "H200"}, {"driver", kUnknown}};
  EXPECT_FALSE(is_known(blind));
  EXPECT_EQ(differences(blind, blind), "driver unknown (unknown here)");
  EXPECT_TRUE(is_known({{"gpu", "H200"}}));
}

constexpr const char* kGpu = "gpu-11111111-1111-1111-1111-111111111111";
constexpr const char* kNoLibrary = "no-such-library.so";

TEST(ArtifactEnvironment, ComesFromTheDriversLibrary) {
  const Environment wanted{{"gpu", "Fake H200"},
                           {"compute_capability", "9.0"},
                           {"driver", "550.54.15"},
                           {"cuda", "12.4"}};
  EXPECT_EQ(local_environment(kGpu, {PRELOAD_FAKE_NVIDIA, kNoLibrary, "/no/such/file"}), wanted);
}

TEST(ArtifactEnvironment, WithoutNvmlComesFromCudaAndTheKernelModule) {
  const test::TempDir directory;
  directory.write("version",
                  "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release "
                  "Build  (dvs-builder)\nGCC version:  gcc version 12.3.0\n");
  const Environment wanted{{"gpu", "Fake H200 of CUDA's"},
                           {"compute_capability", "9.1"},
                           {"driver", "580.95.05"},
                           {"cuda", "12.4"}};
  EXPECT_EQ(local_environment(kGpu, {kNoLibrary, PRELOAD_FAKE_NVIDIA, directory / "version"}),
            wanted);
  // An instance of a GPU that is cut, which this NVML does not know.
  EXPECT_EQ(local_environment("mig-33333333-3333-3333-3333-333333333333",
                              {PRELOAD_FAKE_NVIDIA, PRELOAD_FAKE_NVIDIA, directory / "version"}),
            wanted);
}

TEST(ArtifactEnvironment, WithNeitherIsUnknownAndSaysSo) {
  const IdentitySources none{kNoLibrary, kNoLibrary, "/no/such/file"};
  Environment here;
  const auto lines = log_lines_of([&] { here = local_environment(kGpu, none); });
  const Environment wanted{{"gpu", kUnknown},
                           {"compute_capability", kUnknown},
                           {"driver", kUnknown},
                           {"cuda", kUnknown}};
  EXPECT_EQ(here, wanted);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines.front().find("compute_capability, cuda, driver, gpu"), std::string::npos);
  EXPECT_NE(lines.front().find("NVIDIA_DRIVER_CAPABILITIES"), std::string::npos);
}

TEST(ArtifactEnvironment, OfAHostDeviceIsItsProcessor) {
  const Environment here = local_environment("host:0");
  EXPECT_EQ(here.at("gpu"), "none");
  EXPECT_FALSE(here.at("cpu").empty());
}

}  // namespace
}  // namespace preload::artifact
