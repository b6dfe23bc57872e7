// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tuner/nccl_abi.hpp"
#include "unit/tuner/plugin_use.hpp"
#include "unit/tuner/sample_table.hpp"

namespace preload::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// What NCCL took, and what the plugin asked for.
std::vector<int> taken(const FakeAnswer& answer) {
  return {answer.algorithm, answer.protocol, answer.channels};
}
using Taken = std::vector<int>;

// Structs of four pointers each, name first: tuner_v4.h and tuner_v5.h.
static_assert(sizeof(tuner::nccl::TunerV4) == 4 * sizeof(void*));
static_assert(sizeof(tuner::nccl::TunerV5) == 4 * sizeof(void*));
static_assert(offsetof(tuner::nccl::TunerV4, init) == sizeof(void*));
static_assert(offsetof(tuner::nccl::TunerV4, get_coll_info) == 2 * sizeof(void*));
static_assert(offsetof(tuner::nccl::TunerV4, destroy) == 3 * sizeof(void*));
static_assert(offsetof(tuner::nccl::TunerV5, init) == sizeof(void*));
static_assert(offsetof(tuner::nccl::TunerV5, get_coll_info) == 2 * sizeof(void*));
static_assert(offsetof(tuner::nccl::TunerV5, finalize) == 3 * sizeof(void*));

TEST(TunerPlugin, IsFoundByTheNewestInterfaceThatNcclKnows) {
  EXPECT_EQ(Formed(FakeNccl::current(), 8).abi(), 5);
  EXPECT_EQ(Formed(FakeNccl::older(), 8).abi(), 4);
}

TEST(TunerPlugin, LeavesEverythingToNcclWithoutATable) {
  const ScopedEnv unset("PRELOAD_TUNER_TABLE", nullptr);
  const FakeNccl nccl = FakeNccl::current();
  const Formed communicator(nccl, 8);
  const FakeQuestion question = all_reduce(8192);
  const FakeAnswer answer = communicator.ask(question);
  EXPECT_EQ(answer.costs, question.costs);
  EXPECT_EQ(taken(answer), (Taken{kRing, kLl, 0}));
  EXPECT_THAT(nccl.take_log(), Not(HasSubstr("WARN")));
}

TEST(TunerPlugin, MakesNcclTakeWhatTheTableSays) {
  const NamedTable table(sample_text());
  const FakeNccl nccl = FakeNccl::current();
  const Formed communicator(nccl, 8);
  EXPECT_EQ(taken(communicator.ask(all_reduce(1024))), (Taken{kNvls, kSimple, 16}));
  EXPECT_EQ(taken(communicator.ask(all_reduce(65536))), (Taken{kNvls, kSimple, 16}));
  EXPECT_EQ(taken(communicator.ask(all_reduce(65537))), (Taken{kTree, kLl, 0}));
  EXPECT_EQ(taken(communicator.ask(all_reduce(1048576))), (Taken{kTree, kLl, 0}));
  const std::string log = nccl.take_log();
  EXPECT_THAT(log, HasSubstr("INFO preload: 3 entries of the tuning table"));
  EXPECT_THAT(log, HasSubstr("INFO preload: allreduce of 1024 to 65536 bytes: nvls/simple, 16 "
                             "channels instead of ring/ll (10.00 instead of 12.50 us)\n"));
  EXPECT_THAT(log, Not(HasSubstr("WARN")));
}

TEST(TunerPlugin, TellsOfAnEntryOnce) {
  const NamedTable table(sample_text());
  const FakeNccl nccl = FakeNccl::current();
  const Formed communicator(nccl, 8);
  communicator.ask(all_reduce(1024));
  nccl.take_log();
  communicator.ask(all_reduce(2048));
  EXPECT_EQ(nccl.take_log(), "");
}

TEST(TunerPlugin, LeavesWhatNoEntryCoversToNccl) {
  const NamedTable table(sample_text());
  const Formed communicator(FakeNccl::current(), 8);
  std::vector<FakeQuestion> questions = {all_reduce(1023),      // below all ranges
                                         all_reduce(2097152),   // where NCCL's own choice was kept
                                         all_reduce(16777217),  // above all ranges
                                         all_reduce(8192),     all_reduce(8192), all_reduce(8192)};
  questions[3].registered_buffers = 1;
  questions[4].pipelined_ops = 2;
  questions[5].collective = kAllGather;  // has entries for four ranks alone
  for (const FakeQuestion& question : questions) {
    const FakeAnswer answer = communicator.ask(question);
    EXPECT_EQ(answer.costs, question.costs) << question.bytes;
    EXPECT_EQ(answer.channels, 0) << question.bytes;
  }
}

TEST(TunerPlugin, GivesEachCommunicatorWhatIsForItsShape) {
  const NamedTable table(sample_text());
  const FakeNccl nccl = FakeNccl::current();
  const Formed eight(nccl, 8);
  const Formed four(nccl, 4);
  FakeQuestion gather;
  gather.collective = kAllGather;
  gather.bytes = 4096;
  gather.registered_buffers = 1;
  gather.costs.at(kRing, kSimple) = 3.0F;
  gather.costs.at(kPat, kSimple) = 5.0F;
  EXPECT_EQ(taken(four.ask(gather)), (Taken{kPat, kSimple, 0}));
  EXPECT_EQ(taken(eight.ask(gather)), (Taken{kRing, kSimple, 0}));
  EXPECT_EQ(taken(four.ask(all_reduce(8192))), (Taken{kRing, kLl, 0}));
  EXPECT_EQ(taken(eight.ask(all_reduce(8192))), (Taken{kNvls, kSimple, 16}));
}

TEST(TunerPlugin, LeavesCallsToNcclWhenOtherCandidatesAreOfferedThanWereMeasured) {
  const NamedTable table(sample_text());
  const FakeNccl nccl = FakeNccl::current();
  const Formed communicator(nccl, 8);
  FakeQuestion more = all_reduce(8192);
  more.costs.at(kRing, kLl128) = 30.0F;
  FakeQuestion fewer = all_reduce(8192);
  fewer.costs.at(kTree, kLl) = -1.0F;
  FakeQuestion without_the_choice = all_reduce(8192);
  without_the_choice.costs.at(kNvls, kSimple) = -1.0F;
  for (const FakeQuestion& question : {more, fewer, without_the_choice}) {
    const FakeAnswer answer = communicator.ask(question);
    EXPECT_EQ(answer.costs, question.costs);
    EXPECT_EQ(taken(answer), (Taken{kRing, kLl, 0}));
  }
  EXPECT_THAT(nccl.take_log(), HasSubstr("NCCL offers other algorithms and protocols"));
}

TEST(TunerPlugin, LeavesCallsToNcclWhenItOffersWhatHasNoNameHere) {
  const NamedTable table(sample_text());
  const Formed communicator(FakeNccl::current(), 8);
  FakeQuestion question = all_reduce(8192);
  FakeCosts wider{.algorithms = 8, .protocols = 4};
  for (int algorithm = 0; algorithm < 7; ++algorithm) {
    for (int protocol = 0; protocol < 3; ++protocol) {
      wider.at(algorithm, protocol) = question.costs.at(algorithm, protocol);
    }
  }
  question.costs = wider;
  // A larger table alone changes nothing.
  EXPECT_EQ(taken(communicator.ask(question)), (Taken{kNvls, kSimple, 16}));
  for (const auto& [algorithm, protocol] : {std::pair{7, 0}, std::pair{kRing, 3}}) {
    FakeQuestion unknown = question;
    unknown.costs.at(algorithm, protocol) = 40.0F;
    const FakeAnswer answer = communicator.ask(unknown);
    EXPECT_EQ(answer.costs, unknown.costs);
    EXPECT_EQ(answer.channels, 0);
  }
}

TEST(TunerPlugin, DoesNotTakeWhatNcclAvoidsForPrecision) {
  const NamedTable table(sample_text());
  const FakeNccl nccl = FakeNccl::current();
  const Formed communicator(nccl, 8);
  FakeQuestion question = all_reduce(8192);
  question.costs.at(kNvls, kSimple) = 15.0F * 1024.0F;  // as NCCL marks FP8 in long reductions
  const FakeAnswer answer = communicator.ask(question);
  EXPECT_EQ(answer.costs, question.costs);
  EXPECT_THAT(nccl.take_log(), HasSubstr("NCCL avoids what was chosen"));
  question.costs.at(kNvls, kSimple) = 15.0F * 20.0F;  // slow by NCCL's model is no reason
  EXPECT_EQ(taken(communicator.ask(question)), (Taken{kNvls, kSimple, 16}));
}

TEST(TunerPlugin, PrevailsOverCandidatesThatCostNothing) {
  const NamedTable table(sample_text());
  const Formed communicator(FakeNccl::current(), 8);
  FakeQuestion question = all_reduce(8192);
  question.costs.at(kTree, kLl) = 0.0F;
  question.costs.at(kRing, kSimple) = 0.0F;
  EXPECT_EQ(taken(communicator.ask(question)), (Taken{kNvls, kSimple, 16}));
}

TEST(TunerPlugin, AnswersThroughTheOlderInterfaceToo) {
  std::string text = sample_text();
  text.replace(text.find("2.28.3"), 6, "2.27.5");
  const NamedTable table(text);
  const Formed communicator(FakeNccl::older(), 8);
  EXPECT_EQ(taken(communicator.ask(all_reduce(8192))), (Taken{kNvls, kSimple, 16}));
}

TEST(TunerPlugin, NeverFailsWhateverItIsAsked) {
  void* const library = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto* const plugin =
      static_cast<const tuner::nccl::TunerV4*>(dlsym(library, "ncclTunerPlugin_v4"));
  ASSERT_NE(plugin, nullptr);
  EXPECT_EQ(plugin->init(8, 1, nullptr, nullptr), 0);
  void* context = nullptr;
  EXPECT_EQ(plugin->init(8, 1, nullptr, &context), 0);  // without a logger
  float costs[1] = {1.0F};
  auto** const table = reinterpret_cast<float**>(costs);
  int channels = 0;
  EXPECT_EQ(plugin->get_coll_info(nullptr, 4, 8, 1, table, 1, 1, 0, &channels), 0);
  EXPECT_EQ(plugin->get_coll_info(context, 4, 8, 1, nullptr, 1, 1, 0, &channels), 0);
  EXPECT_EQ(plugin->get_coll_info(context, 4, 8, 1, table, 0, 0, 0, &channels), 0);
  EXPECT_EQ(plugin->get_coll_info(context, 4, 8, 1, table, 1, 1, 0, nullptr), 0);
  for (const int collective : {-1, 5, 1000}) {
    EXPECT_EQ(plugin->get_coll_info(context, collective, 8, 1, table, 1, 1, 0, &channels), 0);
  }
  EXPECT_EQ(plugin->get_coll_info(context, 4, 8, -1, table, 1, 1, 7, &channels), 0);
  EXPECT_EQ(costs[0], 1.0F);
  EXPECT_EQ(channels, 0);
  EXPECT_EQ(plugin->destroy(nullptr), 0);
  EXPECT_EQ(plugin->destroy(context), 0);
  dlclose(library);
}

TEST(TunerPlugin, LoadsAgainAfterItsLastCommunicator) {
  const NamedTable table(sample_text());
  const FakeNccl nccl = FakeNccl::current();
  for (int i = 0; i < 3; ++i) {
    const Formed communicator(nccl, 8);
    EXPECT_EQ(taken(communicator.ask(all_reduce(8192))), (Taken{kNvls, kSimple, 16}));
  }
}

}  // namespace
}  // namespace preload::test
