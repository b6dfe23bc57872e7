// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "unit/tuner/plugin_use.hpp"
#include "unit/tuner/sample_table.hpp"

namespace preload::test {
namespace {

// The layout that programs were built with.
static_assert(sizeof(preload_nccl_tuner_communicator) == 48);
static_assert(offsetof(preload_nccl_tuner_communicator, nccl_version) == 32);
static_assert(sizeof(preload_nccl_tuner_call) == 144);
static_assert(offsetof(preload_nccl_tuner_call, costs) == 32);
static_assert(offsetof(preload_nccl_tuner_call, own_algorithm) == 116);

preload_nccl_tuner_call last_call(const Control& control, std::uint64_t id) {
  preload_nccl_tuner_call call{};
  EXPECT_EQ(control.last_call(id, kAllReduce, &call), 0);
  return call;
}

TEST(TunerPluginControl, ListsTheCommunicatorsThatNcclHolds) {
  const NamedTable table(sample_text());
  const Control control;
  EXPECT_EQ(control.abi_version(), 1U);
  EXPECT_EQ(control.communicators(nullptr, 0), 0U);
  const FakeNccl nccl = FakeNccl::current();
  const Formed first(nccl, 8);
  std::uint64_t gone = 0;
  {
    const Formed second(nccl, 16, 2);
    gone = control.newest().id;
    EXPECT_EQ(control.newest().table, PRELOAD_NCCL_TUNER_TABLE_REFUSED);
    EXPECT_EQ(control.communicators(nullptr, 0), 2U);
  }
  const Formed third(nccl, 4);
  std::vector<preload_nccl_tuner_communicator> all(3);
  ASSERT_EQ(control.communicators(all.data(), all.size()), 2U);
  EXPECT_LT(all[0].id, gone);
  EXPECT_GT(all[1].id, gone);
  EXPECT_EQ(all[0].ranks, 8U);
  EXPECT_EQ(all[0].nodes, 1U);
  EXPECT_EQ(all[0].nccl_id, 0x5eedU + 8);  // as that NCCL gives it
  EXPECT_EQ(all[0].nccl_version, 22803);
  EXPECT_EQ(all[0].abi, 5);
  EXPECT_EQ(all[0].table, PRELOAD_NCCL_TUNER_TABLE_IN_USE);
  EXPECT_EQ(all[0].entries, 3U);
  EXPECT_EQ(all[1].entries, 1U);
  EXPECT_EQ(control.leave(gone, kAllReduce), -1);
}

TEST(TunerPluginControl, ShowsWhatNcclAskedAndWasAnswered) {
  const NamedTable table(sample_text());
  const Control control;
  const Formed communicator(FakeNccl::current(), 8);
  const std::uint64_t id = control.newest().id;
  preload_nccl_tuner_call call{};
  EXPECT_EQ(control.last_call(id, kAllReduce, &call), -1);
  communicator.ask(all_reduce(8192));
  FakeQuestion question = all_reduce(4096);
  question.registered_buffers = 1;
  question.pipelined_ops = 3;
  communicator.ask(question);
  call = last_call(control, id);
  EXPECT_EQ(call.number, 2U);
  EXPECT_EQ(call.bytes, 4096U);
  EXPECT_EQ(call.collective, kAllReduce);
  EXPECT_EQ(call.registered_buffers, 1);
  EXPECT_EQ(call.pipelined_ops, 3);
  EXPECT_EQ(call.unknown_candidates, 0);
  EXPECT_EQ(call.costs[kRing][kLl], 7.0F);
  EXPECT_EQ(call.costs[kNvls][kSimple], 15.0F);
  EXPECT_LT(call.costs[kPat][kSimple], 0.0F);
  EXPECT_EQ(call.own_algorithm, kRing);
  EXPECT_EQ(call.own_protocol, kLl);
  EXPECT_EQ(call.source, PRELOAD_NCCL_TUNER_FROM_NCCL);
  EXPECT_EQ(call.algorithm, kRing);
  EXPECT_EQ(call.channels, 0);

  communicator.ask(all_reduce(8192));
  call = last_call(control, id);
  EXPECT_EQ(call.number, 3U);
  EXPECT_EQ(call.costs[kNvls][kSimple], 15.0F);  // as offered, not as answered
  EXPECT_EQ(call.own_algorithm, kRing);
  EXPECT_EQ(call.source, PRELOAD_NCCL_TUNER_FROM_TABLE);
  EXPECT_EQ(call.algorithm, kNvls);
  EXPECT_EQ(call.protocol, kSimple);
  EXPECT_EQ(call.channels, 16);
}

TEST(TunerPluginControl, ForcesACandidateWhereItIsOffered) {
  const NamedTable table(sample_text());
  const Control control;
  const Formed communicator(FakeNccl::current(), 8);
  const std::uint64_t id = control.newest().id;
  ASSERT_EQ(control.force(id, kAllReduce, kRing, kSimple, 4), 0);
  const FakeAnswer forced = communicator.ask(all_reduce(8192));
  EXPECT_EQ(forced.algorithm, kRing);
  EXPECT_EQ(forced.protocol, kSimple);
  EXPECT_EQ(forced.channels, 4);
  EXPECT_EQ(last_call(control, id).source, PRELOAD_NCCL_TUNER_FROM_FORCE);

  ASSERT_EQ(control.force(id, kAllReduce, kPat, kSimple, 4), 0);
  const FakeAnswer not_offered = communicator.ask(all_reduce(8192));
  EXPECT_EQ(not_offered.costs, all_reduce(8192).costs);
  EXPECT_EQ(not_offered.channels, 0);
  EXPECT_EQ(last_call(control, id).source, PRELOAD_NCCL_TUNER_FROM_NCCL);

  ASSERT_EQ(control.leave(id, kAllReduce), 0);
  EXPECT_EQ(communicator.ask(all_reduce(8192)).costs, all_reduce(8192).costs);
  ASSERT_EQ(control.use_table(id, kAllReduce), 0);
  EXPECT_EQ(communicator.ask(all_reduce(8192)).algorithm, kNvls);
}

TEST(TunerPluginControl, ForcesOneCollectiveOfOneCommunicator) {
  const ScopedEnv unset("PRELOAD_TUNER_TABLE", nullptr);
  const Control control;
  const FakeNccl nccl = FakeNccl::current();
  const Formed first(nccl, 8);
  const std::uint64_t id = control.newest().id;
  const Formed second(nccl, 8);
  ASSERT_EQ(control.force(id, kAllReduce, kTree, kLl, 0), 0);
  FakeQuestion gather = all_reduce(8192);
  gather.collective = kAllGather;
  EXPECT_EQ(first.ask(all_reduce(8192)).algorithm, kTree);
  EXPECT_EQ(first.ask(gather).algorithm, kRing);
  EXPECT_EQ(second.ask(all_reduce(8192)).algorithm, kRing);
}

TEST(TunerPluginControl, LeavesChannelsToNcclThatItWouldNotBound) {
  const Control control;
  const Formed communicator(FakeNccl::current(), 8, 2);
  const std::uint64_t id = control.newest().id;
  ASSERT_EQ(control.force(id, kAllReduce, kNvls, kSimple, 32), 0);
  const FakeAnswer answer = communicator.ask(all_reduce(8192));
  EXPECT_EQ(answer.algorithm, kNvls);
  EXPECT_EQ(answer.channels, 0);
}

TEST(TunerPluginControl, RefusesWhatIsOutOfRange) {
  const Control control;
  const Formed communicator(FakeNccl::current(), 8);
  const std::uint64_t id = control.newest().id;
  preload_nccl_tuner_call call{};
  EXPECT_EQ(control.force(id, 5, kRing, kLl, 0), -1);
  EXPECT_EQ(control.force(id, -1, kRing, kLl, 0), -1);
  EXPECT_EQ(control.force(id, kAllReduce, 7, kLl, 0), -1);
  EXPECT_EQ(control.force(id, kAllReduce, kRing, 3, 0), -1);
  EXPECT_EQ(control.force(id, kAllReduce, kRing, kLl, 65), -1);
  EXPECT_EQ(control.force(id, kAllReduce, kRing, kLl, -1), -1);
  EXPECT_EQ(control.force(id + 1, kAllReduce, kRing, kLl, 0), -1);
  EXPECT_EQ(control.leave(id, 5), -1);
  EXPECT_EQ(control.use_table(0, kAllReduce), -1);
  EXPECT_EQ(control.last_call(id, 5, &call), -1);
  EXPECT_EQ(control.last_call(id, kAllReduce, nullptr), -1);
}

// Several threads with a communicator each, while another changes what they are answered.
TEST(TunerPluginControl, WorksFromManyThreads) {
  const NamedTable table(sample_text());
  const Control control;
  const FakeNccl nccl = FakeNccl::current();
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  constexpr int kCalls = 20;
  std::atomic<int> running = kThreads;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const Formed communicator(nccl, 8);
        for (int call = 0; call < kCalls; ++call) {
          const FakeAnswer answer = communicator.ask(all_reduce(8192));
          const bool from_table = answer.algorithm == kNvls && answer.channels == 16;
          const bool forced = answer.algorithm == kTree && answer.channels == 2;
          if (!from_table && !forced) ++wrong;
        }
      }
      --running;
    });
  }
  while (running != 0) {
    std::vector<preload_nccl_tuner_communicator> all(kThreads);
    all.resize(std::min<std::size_t>(control.communicators(all.data(), all.size()), kThreads));
    for (const auto& communicator : all) {
      control.force(communicator.id, kAllReduce, kTree, kLl, 2);
      preload_nccl_tuner_call call{};
      control.last_call(communicator.id, kAllReduce, &call);
      control.use_table(communicator.id, kAllReduce);
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace preload::test
