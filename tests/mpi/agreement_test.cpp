// SPDX-License-Identifier: Apache-2.0
#include "run/agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "world.hpp"

namespace preload::run {
namespace {

using testing_mpi::world;

TEST(Agreement, PassesWhereNoRankHasAnError) {
  const Cancel cancel;
  EXPECT_NO_THROW(agree(world(), std::nullopt, {"a test", cancel}));
}

TEST(Agreement, ThrowsTheLowestRanksErrorEverywhere) {
  if (world().size() < 4) GTEST_SKIP() << "needs four ranks";
  const Cancel cancel;
  std::optional<Error> mine;
  if (world().rank() == 2) mine.emplace(Errc::kDevice, "the driver failed");
  if (world().rank() == 3) mine.emplace(Errc::kUsage, "a bad directory");
  try {
    agree(world(), mine, {"a test", cancel});
    ADD_FAILURE() << "went on";
  } catch (const AgreedError& error) {
    EXPECT_EQ(error.code(), Errc::kDevice);
    EXPECT_EQ(error.rank(), 2);
    EXPECT_STREQ(error.what(), "the driver failed");
  }
}

TEST(Agreement, EndsEveryRankWithTheStatusOfWhatRankZeroLogs) {
  const Cancel cancel;
  const AgreedError error(Error(Errc::kDevice, "the driver failed"), world().size() - 1);
  testing::internal::CaptureStderr();
  try {
    say_and_end(world(), error, cancel);
  } catch (const Cancelled& cancelled) {
    EXPECT_EQ(cancelled.status(), 4);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  if (world().rank() != 0) {
    EXPECT_EQ(said, "");
    return;
  }
  EXPECT_THAT(said, testing::HasSubstr("the driver failed"));
  const std::string end = "preload: END status=4 rank=" + std::to_string(world().size() - 1) + "\n";
  if (world().size() > 1) {
    EXPECT_THAT(said, testing::HasSubstr(end));
  }
}

// Who leaves alone, whatever the reason, keeps the others waiting.
TEST(Agreement, KeepsWhatALibraryThrowsAsAnErrorToo) {
  const auto error = attempt([] { throw std::runtime_error("a folder cannot be looked into"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::kInternal);
  EXPECT_STREQ(error->what(), "a folder cannot be looked into");
  const auto memory = attempt([] { throw std::bad_alloc(); });
  ASSERT_TRUE(memory);
  EXPECT_EQ(memory->code(), Errc::kMemory);
}

TEST(Agreement, KeepsAnErrorAsAValueAndLetsCancellationPass) {
  const auto error = attempt([] { throw Error(Errc::kBusy, "taken"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Errc::kBusy);
  EXPECT_FALSE(attempt([] {}));
  EXPECT_THROW(attempt([] { throw Cancelled({143, "SIGTERM"}); }), Cancelled);
}

}  // namespace
}  // namespace preload::run
