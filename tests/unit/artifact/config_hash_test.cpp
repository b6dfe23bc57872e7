// SPDX-License-Identifier: Apache-2.0
#include "artifact/config_hash.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::artifact {
namespace {

constexpr const char* kConfig = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64})";

std::string hash(const std::string& config, const std::string& overrides = "",
                 const LayoutRequest& request = {}, const ParallelSizes& sizes = {}) {
  return config_hash(job_fields(config, overrides, request, sizes));
}

TEST(ConfigHash, IsTheSha256OfTheCanonicalJson) {
  // printf '{"command":"warm","tp":"2"}' | sha256sum
  EXPECT_EQ(config_hash({{"tp", "2"}, {"command", "warm"}}),
            "2350a2cdf4c5a1306c712ed74474a9ba417b323559e01d2b33ef968595311d20");
}

TEST(ConfigHash, DoesNotDependOnHowTheConfigIsWrittenOrByWhom) {
  const std::string same = R"({"hidden_size":64,"_name_or_path":"/models/x",)"
                           R"("transformers_version":"5.1","architectures":["LlamaForCausalLM"]})";
  EXPECT_EQ(hash(kConfig), hash(same));
}

TEST(ConfigHash, ChangesWithWhatDecidesKernelsAndCollectives) {
  const std::string base = hash(kConfig);
  EXPECT_NE(base, hash(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 128})"));
  EXPECT_NE(base, hash(kConfig, R"({"hidden_size": 128})"));
  LayoutRequest request;
  request.kv_cache_dtype = "fp8";
  EXPECT_NE(base, hash(kConfig, "", request));
  request = {};
  request.moe_backend = "marlin";
  EXPECT_NE(base, hash(kConfig, "", request));
  request = {};
  request.dtype = DType::kF16;
  EXPECT_NE(base, hash(kConfig, "", request));
  const std::string wide = hash(kConfig, "", {}, {.dp = 2, .pp = 1, .tp = 2});
  EXPECT_NE(base, wide);
  EXPECT_NE(wide, hash(kConfig, "", {}, {.dp = 2, .pp = 1, .tp = 2, .expert_parallel = true}));
  EXPECT_NE(wide, hash(kConfig, "", {}, {.dp = 1, .pp = 2, .tp = 2}));
}

TEST(ConfigHash, AnOverrideCountsAsIfTheConfigSaidSo) {
  EXPECT_EQ(hash(kConfig, R"({"hidden_size": 128})"),
            hash(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 128})"));
}

TEST(ConfigHash, RefusesWhatIsNoObject) {
  EXPECT_THROW(hash("[1]"), Error);
  EXPECT_THROW(hash(kConfig, "{"), Error);
}

}  // namespace
}  // namespace preload::artifact
