// SPDX-License-Identifier: Apache-2.0
#include "bench/child_output.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.hpp"

namespace preload::bench {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

std::string shell(const std::string& script, seconds limit = seconds(60)) {
  return child_output({"sh", "-c", script}, {{"GIVEN", "a b"}, {"HOME", ""}}, limit);
}

std::string failure(const std::string& script, seconds limit = seconds(60)) {
  try {
    shell(script, limit);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ChildOutput, IsAllThatTheProgramPrints) {
  EXPECT_EQ(shell("printf '%s|%s' \"$GIVEN\" \"${HOME-none}\""), "a b|none");
  EXPECT_EQ(shell("cat; head -c 300000 /dev/zero").size(), 300'000U);
}

TEST(ChildOutput, FailsWithTheProgramsNameAndItsEnd) {
  EXPECT_THAT(failure("exit 3"), HasSubstr("sh ended with status 3"));
  EXPECT_THAT(failure("kill -9 $$"), HasSubstr("sh was ended by signal 9"));
  try {
    child_output({"/nowhere/python"}, {}, seconds(60));
    ADD_FAILURE() << "started";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/python cannot be started: No such file"));
  }
}

TEST(ChildOutput, IsGivenUpAfterTheLimit) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(failure("exec sleep 100", seconds(1)), HasSubstr("did not end within 1 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(30));
}

}  // namespace
}  // namespace preload::bench
