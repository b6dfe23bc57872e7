// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>

#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

using ::testing::HasSubstr;

class Artifacts : public ClientTest {
 protected:
  void SetUp() override { serve(); }
  preload_status put(const char* key, const std::string& text, const char* metadata = nullptr) {
    const preload_attach_options o = options();
    return preload_put_artifact(&o, key, metadata, text.data(), text.size());
  }
  preload_status get(const char* key) {
    const preload_attach_options o = options();
    preload_artifact artifact{};
    artifact.struct_size = sizeof(artifact);
    const preload_status status = preload_get_artifact(&o, key, &artifact);
    if (status == PRELOAD_OK) {
      text_.assign(static_cast<const char*>(artifact.data), artifact.bytes);
      metadata_ = artifact.metadata;
      preload_free_artifact(&artifact);
      EXPECT_EQ(artifact.data, nullptr);
    }
    return status;
  }
  std::string text_, metadata_;  // of what was got
};

TEST_F(Artifacts, ComeBackToAnotherClient) {
  ASSERT_EQ(put("autotune/abc123/rank0.json", "tactics", R"({"gpu":"H200"})"), PRELOAD_OK)
      << preload_last_error();
  ASSERT_EQ(get("autotune/abc123/rank0.json"), PRELOAD_OK) << preload_last_error();
  EXPECT_EQ(text_, "tactics");
  EXPECT_EQ(metadata_, R"({"gpu":"H200"})");
}

TEST_F(Artifacts, AreLargeOrSmall) {
  const std::string large(20 << 20, 'x');
  ASSERT_EQ(put("large", large), PRELOAD_OK) << preload_last_error();
  ASSERT_EQ(put("small", "1"), PRELOAD_OK);
  ASSERT_EQ(get("large"), PRELOAD_OK);
  EXPECT_EQ(text_, large);
  EXPECT_EQ(metadata_, "");
}

TEST_F(Artifacts, ThatAreNotThereAreNotFound) {
  EXPECT_EQ(get("absent"), PRELOAD_E_NOT_FOUND);
  EXPECT_THAT(preload_last_error(), HasSubstr("\"absent\""));
}

TEST_F(Artifacts, NeedAKeyThatIsAPathOfPlainNames) {
  for (const char* key : {"", "/", "a/", "/a", "a//b", "..", "a/../b", "a b", "ä"}) {
    EXPECT_EQ(put(key, "x"), PRELOAD_E_USAGE) << key;
    EXPECT_EQ(get(key), PRELOAD_E_USAGE) << key;
  }
  EXPECT_EQ(put(std::string(513, 'k').c_str(), "x"), PRELOAD_E_USAGE);
  EXPECT_EQ(put(std::string(512, 'k').c_str(), "x"), PRELOAD_OK);
}

TEST_F(Artifacts, HaveALimit) {
  EXPECT_EQ(put("empty", ""), PRELOAD_E_USAGE);
  EXPECT_EQ(put("k", std::string((64 << 20) + 1, 'x')), PRELOAD_E_USAGE);
  EXPECT_EQ(put("k", "x", std::string((64 << 10) + 1, 'm').c_str()), PRELOAD_E_USAGE);
  EXPECT_THAT(preload_last_error(), HasSubstr("metadata"));
}

TEST_F(Artifacts, OutliveAReleaseOfTheWeights) {
  ASSERT_EQ(put("k", "kept"), PRELOAD_OK);
  server_->release();
  ASSERT_EQ(get("k"), PRELOAD_OK);
  EXPECT_EQ(text_, "kept");
}

}  // namespace
}  // namespace preload::test
