// SPDX-License-Identifier: Apache-2.0
#include "run/host_share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kGiB = 1 << 30;
constexpr const char* kMachine = "the machine";
constexpr const char* kGroup = "cgroup /sys/fs/cgroup";

TEST(HostShare, IsEnoughWhereTheSumFits) {
  EXPECT_EQ(
      host_shortage({{0, kMachine, 1, 4 * kGiB, 8 * kGiB}, {0, kMachine, 1, 4 * kGiB, 8 * kGiB}}),
      std::nullopt);
}

TEST(HostShare, IsRefusedWhereRanksFitOnlyOneByOne) {
  const auto shortage = host_shortage({{0, kMachine, 1, kGiB, 8 * kGiB},
                                       {1, kMachine, 1, 3 * kGiB, 5 * kGiB},
                                       {1, kMachine, 2, 3 * kGiB, 6 * kGiB}});
  ASSERT_TRUE(shortage);
  EXPECT_THAT(*shortage, AllOf(HasSubstr("2 ranks of one node, from rank 1"), HasSubstr("6.00 GiB"),
                               HasSubstr("5.00 GiB"), HasSubstr(kMachine)));
}

TEST(HostShare, IsTheGroupsOwnOfRanksInDifferentGroups) {
  EXPECT_EQ(host_shortage(
                {{0, "cgroup /a", 1, 3 * kGiB, 4 * kGiB}, {0, "cgroup /b", 1, 3 * kGiB, 4 * kGiB}}),
            std::nullopt);
}

TEST(HostShare, IsTheContainersOwnWhereContainersCallTheirGroupsTheSame) {
  EXPECT_EQ(host_shortage({{0, kGroup, 1, 3 * kGiB, 4 * kGiB}, {0, kGroup, 2, 3 * kGiB, 4 * kGiB}}),
            std::nullopt);
  EXPECT_THAT(
      host_shortage({{0, kGroup, 1, 3 * kGiB, 4 * kGiB}, {0, kGroup, 1, 3 * kGiB, 4 * kGiB}}),
      testing::Optional(HasSubstr(kGroup)));
}

TEST(HostShare, OfOneRankIsLeftToItsAllocation) {
  EXPECT_EQ(host_shortage({{0, kMachine, 1, 9 * kGiB, 8 * kGiB}}), std::nullopt);
}

TEST(HostShare, OfOneRanksRolesIsNotLeftToTheirAllocations) {
  EXPECT_THAT(host_shortage({{0, kMachine, 1, 9 * kGiB, 8 * kGiB, 2}}),
              testing::Optional(HasSubstr("1 rank of one node")));
  EXPECT_EQ(host_shortage({{0, kMachine, 1, 7 * kGiB, 8 * kGiB, 2}}), std::nullopt);
}

}  // namespace
}  // namespace preload::run
