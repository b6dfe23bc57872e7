// SPDX-License-Identifier: Apache-2.0
#include "base/counted.hpp"

#include <gtest/gtest.h>

namespace preload::test {
namespace {

TEST(Counted, OneIsSingularAndEverythingElseIsNot) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1U, "rank"), "1 rank");
  EXPECT_EQ(counted(std::uint64_t{1} << 40, "byte"), "1099511627776 bytes");
  EXPECT_EQ(counted(2, "mismatch"), "2 mismatches");
  EXPECT_EQ(counted(1, "mismatch"), "1 mismatch");
  EXPECT_EQ(counted(1, "rank", "was", "were"), "1 rank was");
  EXPECT_EQ(counted(3, "rank", "was", "were"), "3 ranks were");
}

}  // namespace
}  // namespace preload::test
