// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "support/cpu_time.hpp"
#include "world.hpp"

namespace preload {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_mpi::own_group;
using testing_mpi::world;

// Bytes that only (from, to) would send: a different length and letter for each pair.
std::string letter_of(int from, int to, int scale) {
  return std::string(static_cast<std::size_t>(scale * from + 3 * to),
                     static_cast<char>('a' + (from * 7 + to) % 26));
}

class Rounds : public testing::TestWithParam<std::size_t> {};

TEST_P(Rounds, GatherEveryRanksBytesByRank) {
  const auto group = own_group(GetParam());
  const Cancel cancel;
  const auto parts = group->all_gather(letter_of(group->rank(), 0, 1000), {"a test", cancel});
  ASSERT_EQ(parts.size(), static_cast<std::size_t>(group->size()));
  for (int rank = 0; rank < group->size(); ++rank) {
    EXPECT_EQ(parts[static_cast<std::size_t>(rank)], letter_of(rank, 0, 1000)) << rank;
  }
}

TEST_P(Rounds, BroadcastTheRootsBytesWhicheverItIs) {
  const auto group = own_group(GetParam());
  const Cancel cancel;
  for (int root = 0; root < group->size(); ++root) {
    const std::string mine = letter_of(group->rank(), 1, 700);
    EXPECT_EQ(group->broadcast(mine, root, {"a test", cancel}), letter_of(root, 1, 700)) << root;
  }
  EXPECT_EQ(group->broadcast("", 0, {"a test", cancel}), "");
}

TEST_P(Rounds, SendMessagesOfKnownSizesToWhomTheyAreFor) {
  const auto group = own_group(GetParam());
  const Cancel cancel;
  const int self = group->rank();
  for (int turn = 0; turn < 3; ++turn) {
    // Everybody to the next ranks but one; nothing else.
    std::vector<std::string> letters;
    std::vector<std::string> rooms;
    for (int step = 1; step + 1 < group->size(); ++step) {
      const int from = (self + group->size() - step) % group->size();
      letters.push_back(letter_of(self + 1, (self + step) % group->size() + turn, 500));
      rooms.emplace_back(letter_of(from + 1, self + turn, 500).size(), '?');
    }
    std::vector<GroupMessage> out;
    std::vector<GroupMessage> in;
    for (int step = 1; step + 1 < group->size(); ++step) {
      const auto i = static_cast<std::size_t>(step - 1);
      out.push_back({(self + step) % group->size(), reinterpret_cast<std::byte*>(letters[i].data()),
                     letters[i].size()});
      in.push_back({(self + group->size() - step) % group->size(),
                    reinterpret_cast<std::byte*>(rooms[i].data()), rooms[i].size()});
    }
    group->exchange(out, in, {"a test", cancel});
    for (std::size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(rooms[i], letter_of(in[i].rank + 1, self + turn, 500)) << "from " << in[i].rank;
    }
  }
}

TEST_P(Rounds, ExchangeADifferentPartWithEveryRank) {
  const auto group = own_group(GetParam());
  const Cancel cancel;
  std::vector<std::string> out;
  for (int to = 0; to < group->size(); ++to) out.push_back(letter_of(group->rank(), to, 500));
  const auto in = group->all_to_all(out, {"a test", cancel});
  ASSERT_EQ(in.size(), out.size());
  for (int from = 0; from < group->size(); ++from) {
    EXPECT_EQ(in[static_cast<std::size_t>(from)], letter_of(from, group->rank(), 500)) << from;
  }
}

// One call; some bytes in each round; the last round a part of one.
INSTANTIATE_TEST_SUITE_P(MpiGroup, Rounds, testing::Values(kMaxRoundBytes, 64, 999));

TEST(MpiGroup, RefusesAnExchangeOfTheWrongNumberOfParts) {
  const Cancel cancel;
  const std::vector<std::string> parts(static_cast<std::size_t>(world().size()) + 1);
  EXPECT_THROW(world().all_to_all(parts, {"a test", cancel}), Error);
}

TEST(MpiGroup, SleepsWhileItWaits) {
  if (world().size() == 1) GTEST_SKIP() << "needs several ranks";
  const Cancel cancel;
  world().barrier({"a test", cancel});
  if (world().rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const double before = test::cpu_seconds();
  world().barrier({"a late rank", cancel});
  EXPECT_LT(test::cpu_seconds() - before, 0.5);
}

TEST(MpiGroup, StopsWaitingWhenCancelled) {
  if (world().size() == 1) GTEST_SKIP() << "needs several ranks";
  const auto group = own_group();
  Cancel cancel;
  if (group->rank() == 0) {
    // Comes so late that the others have given up; completes their barrier all the same.
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    group->barrier({"the ranks that gave up", cancel});
  } else {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      cancel.request({143, "ended by SIGTERM"});
    });
    try {
      group->barrier({"a rank that does not come", cancel});
      ADD_FAILURE() << "went on";
    } catch (const Cancelled& cancelled) {
      EXPECT_EQ(cancelled.status(), 143);
    }
    other.join();
    const Cancel fresh;
    EXPECT_THROW(group->barrier({"anything", fresh}), Error);  // it has left the group
  }
  const Cancel fresh;
  world().barrier({"a test", fresh});
}

TEST(MpiGroup, NamesWhatItWaitedForAtItsDeadline) {
  if (world().size() == 1) GTEST_SKIP() << "needs several ranks";
  const auto group = own_group();
  const Cancel cancel;
  if (group->rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1800));
    group->barrier({"the ranks that gave up", cancel});
  } else {
    try {
      group->barrier({"rank 0's plan", cancel, std::chrono::seconds(1)});
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kLauncher);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("waited 1 s for rank 0's plan"),
                                      HasSubstr("rank " + std::to_string(group->rank()))));
    }
  }
  world().barrier({"a test", cancel});
}

TEST(MpiGroup, KeepsEveryCollectiveRightUnderOtherRankNumbers) {
  const int size = world().size();
  std::vector<int> reversed;
  for (int i = size - 1; i >= 0; --i) reversed.push_back(i);
  const auto group = order_ranks(own_group(), reversed);
  const Cancel cancel;
  ASSERT_EQ(group->rank(), size - 1 - world().rank());
  const int rank = group->rank();
  const auto parts = group->all_gather(std::to_string(rank), {"a test", cancel});
  std::vector<std::string> out;
  for (int i = 0; i < size; ++i) {
    EXPECT_EQ(parts[static_cast<std::size_t>(i)], std::to_string(i));
    out.push_back(letter_of(rank, i, 10));
  }
  const auto in = group->all_to_all(out, {"a test", cancel});
  for (int i = 0; i < size; ++i) {
    EXPECT_EQ(in[static_cast<std::size_t>(i)], letter_of(i, rank, 10));
  }
  EXPECT_EQ(group->broadcast(std::to_string(rank), size - 1, {"a test", cancel}),
            std::to_string(size - 1));
}

TEST(Group, StopsWaitingForMessagesWhenItIsTold) {
  const auto group = own_group();
  if (group->size() == 1) GTEST_SKIP() << "nobody to wait for";
  const Cancel cancel;
  std::atomic<bool> stop{false};
  std::string room(1 << 20, '?');
  const GroupMessage in{(group->rank() + 1) % group->size(),
                        reinterpret_cast<std::byte*>(room.data()), room.size()};
  const std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
  });
  EXPECT_THROW(group->exchange({}, {&in, 1}, {"a test", cancel, std::chrono::seconds(60), &stop}),
               Error);
  EXPECT_THROW(group->barrier({"a test", cancel}), Error) << "it has left the group";
}

}  // namespace
}  // namespace preload
