// SPDX-License-Identifier: Apache-2.0
#include "artifact/environment.hpp"

#include <gtest/gtest.h>

#include "artifact/local_environment.hpp"

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

TEST(ArtifactEnvironment, ComesFromTheDriversLibrary) {
  const Environment wanted{{"gpu", "Fake H200"},
                           {"compute_capability", "9.0"},
                           {"driver", "550.54.15"},
                           {"cuda", "12.4"}};
  EXPECT_EQ(local_environment("gpu-11111111-1111-1111-1111-111111111111", PRELOAD_FAKE_NVIDIA),
            wanted);
  EXPECT_EQ(local_environment("gpu-33333333-3333-3333-3333-333333333333", PRELOAD_FAKE_NVIDIA),
            Environment());
  EXPECT_EQ(local_environment("gpu-11111111-1111-1111-1111-111111111111", "no-such-library.so"),
            Environment());
}

TEST(ArtifactEnvironment, OfAHostDeviceIsItsProcessor) {
  const Environment here = local_environment("host:0");
  EXPECT_EQ(here.at("gpu"), "none");
  EXPECT_FALSE(here.at("cpu").empty());
}

}  // namespace
}  // namespace preload::artifact
