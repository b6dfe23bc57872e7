// SPDX-License-Identifier: Apache-2.0
#include "load/read_gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "load/run_threads.hpp"

namespace preload {
namespace {

TEST(ReadGate, LetsAsManyThroughAsItMayAndNoMore) {
  ReadGate gate(3);
  std::atomic<int> inside{0}, most{0};
  run_threads(8, [&](int index, const std::atomic<bool>&) {
    for (int turn = 0; turn < 50; ++turn) {
      const ReadPass pass(&gate, 1 + (index + turn) % 4);
      EXPECT_GE(pass.count(), 1);
      const int now = inside += pass.count();
      int seen = most;
      while (now > seen && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      inside -= pass.count();
    }
  });
  EXPECT_LE(most, 3);
  EXPECT_EQ(gate.most(), 3);
}

TEST(ReadGate, GivesWhatIsLeftOfWhatIsWanted) {
  ReadGate gate(5);
  const ReadPass first(&gate, 4);
  const ReadPass second(&gate, 4);
  EXPECT_EQ(first.count(), 4);
  EXPECT_EQ(second.count(), 1);
  EXPECT_EQ(ReadPass(nullptr, 7).count(), 7);
}

TEST(ReadGate, SharesANodesReadsAmongItsRanks) {
  EXPECT_EQ(share_of_reads(std::nullopt, 1), (ReadsInFlight{0, 32}));
  EXPECT_EQ(share_of_reads(std::nullopt, 8), (ReadsInFlight{0, 4}));
  EXPECT_EQ(share_of_reads(std::nullopt, 100), (ReadsInFlight{0, 1}));
  EXPECT_EQ(share_of_reads(20, 8), (ReadsInFlight{2, 2}));
  EXPECT_EQ(share_of_reads(3, 8), (ReadsInFlight{1, 1}));
}

}  // namespace
}  // namespace preload
