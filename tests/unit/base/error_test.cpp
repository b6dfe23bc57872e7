// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/cancel.hpp"
#include "base/log.hpp"

namespace preload {
namespace {

TEST(Error, GivesTheDocumentedExitStatusForEachCode) {
  EXPECT_EQ(exit_status(Errc::kInternal), 1);
  EXPECT_EQ(exit_status(Errc::kUnexpectedEnd), 1);
  EXPECT_EQ(exit_status(Errc::kTimeout), 1);
  EXPECT_EQ(exit_status(Errc::kUsage), 2);
  EXPECT_EQ(exit_status(Errc::kCheckpoint), 3);
  EXPECT_EQ(exit_status(Errc::kModel), 3);
  EXPECT_EQ(exit_status(Errc::kDevice), 4);
  EXPECT_EQ(exit_status(Errc::kMemory), 4);
  EXPECT_EQ(exit_status(Errc::kLauncher), 5);
  EXPECT_EQ(exit_status(Errc::kBusy), 6);
  EXPECT_EQ(exit_status(Errc::kUnavailable), 7);
  EXPECT_EQ(exit_status(Errc::kMismatch), 7);
  EXPECT_EQ(exit_status(Errc::kReleased), 7);
  EXPECT_EQ(exit_status(Errc::kProtocol), 7);
}

TEST(Error, WireCodesAreDistinctAndComeBack) {
  std::set<std::string_view> seen;
  for (int i = 0; i <= static_cast<int>(Errc::kProtocol); ++i) {
    const auto code = static_cast<Errc>(i);
    EXPECT_TRUE(seen.insert(wire_code(code)).second) << wire_code(code);
    EXPECT_EQ(errc_from_wire(wire_code(code)), code);
  }
  EXPECT_EQ(errc_from_wire("no such code"), std::nullopt);
}

TEST(Error, KnowsWhereItWasThrown) {
  const Error error(Errc::kBusy, "the GPU is taken");
  EXPECT_STREQ(error.what(), "the GPU is taken");
  EXPECT_NE(std::string(error.where().file_name()).find("error_test.cpp"), std::string::npos);
}

TEST(Cancel, KeepsTheFirstCause) {
  Cancel cancel;
  EXPECT_FALSE(cancel.requested());
  EXPECT_NO_THROW(cancel.check());
  cancel.request({143, "SIGTERM"});
  cancel.request({130, "SIGINT"});
  ASSERT_TRUE(cancel.requested());
  EXPECT_EQ(cancel.cause()->status, 143);
  try {
    cancel.check();
    FAIL() << "check() returned";
  } catch (const Cancelled& cancelled) {
    EXPECT_EQ(cancelled.status(), 143);
    EXPECT_STREQ(cancelled.what(), "SIGTERM");
  }
}

TEST(Log, RefusesALevelThatDoesNotExist) {
  EXPECT_EQ(log::parse_level("debug"), log::Level::kDebug);
  try {
    (void)log::parse_level("loud");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_NE(std::string(error.what()).find("loud"), std::string::npos);
  }
}

}  // namespace
}  // namespace preload
