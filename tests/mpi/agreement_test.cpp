// SPDX-License-Identifier: Apache-2.0
#include "run/agreement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "world.hpp"

namespace preload::run {
namespace {

using testing_mpi::world;

TEST(Agreement, PassesWhereNoRankHasAnError) {
  const Cancel cancel;
  EXPECT_NO_THROW(agree(world(), std::nullopt, {"a test", cancel}));
}

TEST(Agreement, ThrowsTheLowestRanksErrorEverywhereButLetsRankZeroAloneLogIt) {
  if (world().size() < 4) GTEST_SKIP() << "needs four ranks";
  const Cancel cancel;
  std::optional<Error> mine;
  if (world().rank() == 2) mine.emplace(Errc::kDevice, "the driver failed");
  if (world().rank() == 3) mine.emplace(Errc::kUsage, "a bad directory");
  try {
    agree(world(), mine, {"a test", cancel});
    ADD_FAILURE() << "went on";
  } catch (const Cancelled& cancelled) {
    EXPECT_NE(world().rank(), 0);
    EXPECT_EQ(cancelled.status(), 4);
  } catch (const Error& error) {
    EXPECT_EQ(world().rank(), 0);
    EXPECT_EQ(error.code(), Errc::kDevice);
    EXPECT_STREQ(error.what(), "rank 2: the driver failed");
  }
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
