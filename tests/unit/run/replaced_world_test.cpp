// SPDX-License-Identifier: Apache-2.0
#include "run/replaced_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::run::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using All = std::vector<Replaced>;

TEST(ReplacedWorld, AWholeJobMayBeReplacedByAsManyRanksOrMore) {
  EXPECT_EQ(torn_apart({}, 2), std::nullopt) << "there was none";
  const All both{{"j", 0, 2, 2, 0, {0, 1}}, {"j", 1, 2, 2, 0, {0, 1}}};
  EXPECT_EQ(torn_apart(both, 2), std::nullopt);
  EXPECT_EQ(torn_apart(both, 4), std::nullopt);
  const All two_jobs{{"j", 0, 1, 1, 0, {0}}, {"k", 0, 1, 1, 0, {0}}};
  EXPECT_EQ(torn_apart(two_jobs, 2), std::nullopt);
}

TEST(ReplacedWorld, ARankThatWouldGoOnAloneIsNamedWithBothWorlds) {
  const All one{{"j", 0, 4, 4, 0, {0, 1, 3}}};
  EXPECT_THAT(
      torn_apart(one, 1).value_or(""),
      AllOf(HasSubstr("job j has 4 ranks"), HasSubstr("the 1 rank of this job"),
            HasSubstr("its ranks 1, 3 would go on alone"), HasSubstr("preload stop --job")));
}

TEST(ReplacedWorld, RanksOnOtherHostsWouldGoOnAlone) {
  const All here{{"j", 0, 4, 2, 0, {0, 1}}, {"j", 1, 4, 2, 0, {0, 1}}};
  EXPECT_THAT(torn_apart(here, 2).value_or(""),
              AllOf(HasSubstr("job j has 4 ranks"), HasSubstr("the 2 ranks of this job"),
                    HasSubstr("hosts that this job has no rank on")));
  const All everywhere{{"j", 0, 4, 2, 0, {0, 1}},
                       {"j", 1, 4, 2, 0, {0, 1}},
                       {"j", 2, 4, 2, 1, {2, 3}},
                       {"j", 3, 4, 2, 1, {2, 3}}};
  EXPECT_EQ(torn_apart(everywhere, 4), std::nullopt);
}

TEST(ReplacedWorld, RanksThatWereStoppedLeaveNobodyAlone) {
  const All rest{{"j", 1, 2, 2, 0, {1}}};
  EXPECT_EQ(torn_apart(rest, 1), std::nullopt);
}

}  // namespace
}  // namespace preload::run::test
