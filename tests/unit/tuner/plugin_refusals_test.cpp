// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "unit/tuner/plugin_use.hpp"
#include "unit/tuner/sample_table.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  return text.replace(text.find(what), what.size(), with);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// Two communicators, so that what is said twice shows. Checks that both are left to NCCL; returns
// what was logged.
std::string log_of_refusal(const FakeNccl& nccl, std::size_t ranks = 8, std::size_t nodes = 1) {
  const Formed first(nccl, ranks, nodes);
  const Formed second(nccl, ranks, nodes);
  for (const Formed* communicator : {&first, &second}) {
    const FakeQuestion question = all_reduce(8192);
    const FakeAnswer answer = communicator->ask(question);
    EXPECT_EQ(answer.costs, question.costs);
    EXPECT_EQ(answer.channels, 0);
  }
  std::string log = nccl.take_log();
  EXPECT_EQ(count(log, "WARN "), 1U) << log;
  EXPECT_EQ(count(log, "\n"), 1U) << log;
  EXPECT_THAT(log, HasSubstr("; NCCL chooses for itself. PRELOAD_TUNER_TABLE must name the same "
                             "table on all ranks, or on none\n"));
  return log;
}

TEST(TunerPluginRefuses, ATableThatIsNotThere) {
  const ScopedEnv variable("PRELOAD_TUNER_TABLE", "/nowhere/table.json");
  EXPECT_THAT(log_of_refusal(FakeNccl::current()),
              AllOf(StartsWith("WARN preload: the tuning table '/nowhere/table.json' cannot be "
                               "opened: "),
                    HasSubstr("write one with `preload tune`")));
}

TEST(TunerPluginRefuses, Garbage) {
  for (const std::string& text : {std::string(), std::string("\0\xff\xfe", 3),
                                  std::string(1000000, '{'), sample_text().substr(0, 700)}) {
    const NamedTable table(text);
    EXPECT_THAT(log_of_refusal(FakeNccl::current()),
                HasSubstr("write it again with `preload tune`"));
  }
}

TEST(TunerPluginRefuses, ATableOfAnotherNccl) {
  const NamedTable table(sample_text());
  EXPECT_THAT(log_of_refusal(FakeNccl::older()),
              AllOf(HasSubstr("is of NCCL 2.28.3, this is NCCL 2.27.5"),
                    HasSubstr("`preload tune --nccl-library FILE`")));
}

TEST(TunerPluginRefuses, ATableWhereNcclDoesNotTellItsVersion) {
  const NamedTable table(sample_text());
  EXPECT_THAT(log_of_refusal(FakeNccl::unversioned()),
              HasSubstr("the NCCL of this process does not tell its version"));
}

TEST(TunerPluginRefuses, ATableOfAnotherTopology) {
  const NamedTable table(sample_text());
  EXPECT_THAT(log_of_refusal(FakeNccl::current(), 16, 2),
              HasSubstr("it was measured in a job of 8 ranks on 1 node, without a communicator of "
                        "16 ranks on 2 nodes such as this one"));
  EXPECT_THAT(log_of_refusal(FakeNccl::current(), 8, 2),
              HasSubstr("without a communicator of 8 ranks on 2 nodes"));
  EXPECT_THAT(log_of_refusal(FakeNccl::current(), 2, 1),
              HasSubstr("without a communicator of 2 ranks on 1 node"));
}

TEST(TunerPluginRefuses, ATableOfOtherGpus) {
  const auto driver = fake_gpu();
  {
    const NamedTable table(sample_text());
    const Formed communicator(FakeNccl::current(), 8);
    EXPECT_EQ(communicator.ask(all_reduce(8192)).algorithm, kNvls);
  }
  const NamedTable table(replaced(sample_text(), "Fake GPU 3", "Fake GPU 1"));
  EXPECT_THAT(log_of_refusal(FakeNccl::current()),
              HasSubstr("was measured on Fake GPU 1, this is Fake GPU 3; tune on GPUs of this kind "
                        "with `preload tune`, mixed kinds in one job"));
}

TEST(TunerPluginRefuses, NothingWhereThereIsOneRank) {
  const ScopedEnv variable("PRELOAD_TUNER_TABLE", "/nowhere/table.json");
  const FakeNccl nccl = FakeNccl::current();
  const Formed communicator(nccl, 1);
  EXPECT_EQ(nccl.take_log(), "");
}

}  // namespace
}  // namespace preload::test
