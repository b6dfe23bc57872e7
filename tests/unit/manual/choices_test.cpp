// SPDX-License-Identifier: Apache-2.0
#include "manual/choices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/error.hpp"
#include "cli/serve_options.hpp"

namespace preload::manual::test {
namespace {

// Why the parser refuses --option=word, or "".
std::string refusal(std::string_view option, const std::string& word) {
  try {
    // Some options are for a command that has to be there.
    cli::parse_serve_options(
        {"--model", "x", "--warmup-exec", "true", "--" + std::string(option) + "=" + word});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Choices, OfferedWordsAreTakenByTheParser) {
  int words_seen = 0;
  for (const cli::OptionSpec& option : cli::option_table()) {
    if (value_kind(option) != ValueKind::kWords || !cli::takes(option, "serve")) continue;
    std::istringstream words{value_words(option.name)};
    for (std::string word; words >> word; ++words_seen) {
      EXPECT_THAT(refusal(option.name, word), testing::Not(testing::HasSubstr("must be")))
          << option.name;
    }
    EXPECT_THAT(refusal(option.name, "no-such-word"), testing::HasSubstr("no-such-word"))
        << option.name << " takes other words too";
  }
  EXPECT_GT(words_seen, 20);
}

TEST(Choices, FollowFromThePlaceholder) {
  EXPECT_EQ(value_kind({"x", "", "", "serve", ""}), ValueKind::kNone);
  EXPECT_EQ(value_kind({"x", "", "DIR_OR_HF_ID", "serve", ""}), ValueKind::kPath);
  EXPECT_EQ(value_kind({"x", "", "N", "serve", ""}), ValueKind::kFree);
  EXPECT_EQ(value_kind({"role", "", "ROLE", "wait", ""}), ValueKind::kWords);
}

}  // namespace
}  // namespace preload::manual::test
