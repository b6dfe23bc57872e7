// SPDX-License-Identifier: Apache-2.0
#include "comm/fd_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "world.hpp"

namespace preload {
namespace {

using testing::HasSubstr;
using testing_mpi::own_group;

constexpr std::size_t kBytes = 64;

Fd memory_of(int rank, std::size_t index) {
  Fd fd = make_memfd("test", kBytes);
  const std::string text = std::to_string(rank) + " " + std::to_string(index);
  write_full(fd.get(), std::as_bytes(std::span(text)), "a test's memory");
  return fd;
}

std::string text_of(const Fd& fd) {
  const Mapping mapping = map_fd(fd.get(), kBytes, true, "a test's memory");
  return reinterpret_cast<const char*>(mapping.data());
}

class Exchange : public testing::TestWithParam<std::size_t> {};

TEST_P(Exchange, GivesEveryRankTheOthersDescriptorsInTheirOrder) {
  const auto group = own_group();
  const Cancel cancel;
  std::vector<Fd> mine;
  for (std::size_t i = 0; i < GetParam(); ++i) mine.push_back(memory_of(group->rank(), i));
  FdExchange exchange{mine, {}, {}};
  for (int rank = 0; rank < group->size(); ++rank) {
    if (rank == group->rank()) continue;
    exchange.receivers.push_back(rank);
    exchange.givers.push_back(rank);
  }
  const auto received = exchange_fds(*group, exchange, {"a test", cancel});
  ASSERT_EQ(received.size(), exchange.givers.size());
  for (const auto& [rank, fds] : received) {
    ASSERT_EQ(fds.size(), GetParam());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      ASSERT_EQ(text_of(fds[i]), std::to_string(rank) + " " + std::to_string(i));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Numbers, Exchange, testing::Values(0, 1, 200, 201, 450));

TEST(FdExchange, LeavesRanksThatExchangeNothingAlone) {
  const auto group = own_group();
  const Cancel cancel;
  const std::vector<Fd> none;
  EXPECT_TRUE(exchange_fds(*group, {none, {}, {}}, {"a test", cancel}).empty());
}

TEST(FdExchange, NamesARankThatDoesNotComeWithinTheTime) {
  const auto group = own_group();
  if (group->size() < 2) GTEST_SKIP() << "needs two ranks";
  const Cancel cancel;
  const std::vector<Fd> none;
  FdExchange exchange{none, {}, {}};
  if (group->rank() == 0) exchange.receivers.push_back(1);  // which does not ask
  try {
    exchange_fds(*group, exchange, {"the others' memory", cancel, std::chrono::seconds(1)});
    EXPECT_NE(group->rank(), 0);
  } catch (const Error& error) {
    EXPECT_EQ(group->rank(), 0);
    EXPECT_EQ(error.code(), Errc::kLauncher);
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("the others' memory"));
  }
}

TEST(FdExchange, StopsWaitingWhenTheJobIsCancelled) {
  const auto group = own_group();
  if (group->size() < 2) GTEST_SKIP() << "needs two ranks";
  Cancel cancel;
  const std::vector<Fd> none;
  FdExchange exchange{none, {}, {}};
  group->barrier({"a test", cancel});
  std::jthread canceller;
  if (group->rank() == 0) {
    exchange.receivers.push_back(1);
    canceller = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      cancel.request({143, "terminated"});
    });
    EXPECT_THROW(exchange_fds(*group, exchange, {"a test", cancel}), Cancelled);
  } else {
    exchange_fds(*group, exchange, {"a test", cancel});
  }
}

}  // namespace
}  // namespace preload
