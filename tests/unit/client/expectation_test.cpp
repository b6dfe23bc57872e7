// SPDX-License-Identifier: Apache-2.0
#include "client/expectation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::client {
namespace {

using testing::HasSubstr;

TEST(Expectation, TakesTheModelAndLeavesTheRestToTheDaemon) {
  const Expectation expect = expectation_from_json(
      R"({"model": "/m", "revision": "v2", "trust_sample": true, "fields": {"tp_size": 2}})");
  EXPECT_EQ(expect.model, "/m");
  EXPECT_EQ(expect.revision, "v2");
  EXPECT_TRUE(expect.trust_sample);
  EXPECT_EQ(expect.served.fields.at("tp_size"), "2");
  EXPECT_FALSE(expect.served.key.has_value());
}

TEST(Expectation, OfNothingIsEmpty) {
  for (const char* text : {"{}", R"({"model": null, "key": null})"}) {
    const Expectation expect = expectation_from_json(text);
    EXPECT_TRUE(expect.served.empty());
    EXPECT_EQ(expect.model, "");
    EXPECT_EQ(expect.revision, "main");
  }
}

TEST(Expectation, ThatCannotBeCheckedIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "JSON object"},
      {"[]", "JSON object"},
      {R"({"model": 3})", "\"model\" must be a directory or a hub id, not 3"},
      {R"({"model": ""})", "\"model\" is empty"},
      {R"({"model": "/m", "trust_sample": "yes"})", "true or false"},
      {R"({"trust_sample": true})", "without \"model\""},
      {R"({"modell": "/m"})", "modell"},
      {R"({"key": "12"})", "64 lower-case hex digits"},
  };
  for (const auto& [text, reason] : cases) {
    try {
      expectation_from_json(text);
      ADD_FAILURE() << "taken: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kUsage) << text;
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  }
}

}  // namespace
}  // namespace preload::client
