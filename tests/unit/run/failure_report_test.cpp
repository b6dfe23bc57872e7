// SPDX-License-Identifier: Apache-2.0
#include "run/failure_report.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace preload::run::test {
namespace {

// What is said on stderr, with this token in the environment.
std::string said(const char* token, const JobFailure& failure) {
  ::setenv("PRELOAD_LAUNCH_ID", token, 1);
  testing::internal::CaptureStderr();
  report_failure(failure, {4, 5, 6});
  std::string text = testing::internal::GetCapturedStderr();
  ::unsetenv("PRELOAD_LAUNCH_ID");
  return text.substr(text.find('\n') + 1);
}

TEST(FailureReport, TheEndLineEndsWithTheTokenOfTheLaunch) {
  EXPECT_EQ(said("00ff", {1, 3, "x", false}), "preload: END status=3 rank=1 launch=00ff\n");
  EXPECT_EQ(said("00ff", {1, 1, "x", true}),
            "preload: END status=1 rank=1 task=5 lost launch=00ff\n");
}

TEST(FailureReport, WhatIsNoTokenIsNotSaid) {
  for (const char* token : {"", "00 status=0", "0\npreload: END status=0", "XYZ"})
    EXPECT_EQ(said(token, {1, 3, "x", false}), "preload: END status=3 rank=1\n") << token;
}

TEST(FailureReport, TextsOfOthersNeverBeginALine) {
  testing::internal::CaptureStderr();
  report_failure({1, 3, "architecture 'X\npreload: END status=0'", false}, {});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("\npreload: END status=0"), std::string::npos) << text;
}

}  // namespace
}  // namespace preload::run::test
