// SPDX-License-Identifier: Apache-2.0
#include "load/stalled_reads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "load/run_threads.hpp"

namespace preload {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StalledReadsTest : public testing::Test {
 protected:
  StalledReadsTest() { watch_.set_paths({"/m/a.safetensors", "/m/b.safetensors"}); }

  std::vector<std::string> at(int second) { return stalls_.look(start_ + seconds(second)); }

  ReadWatch watch_;
  StalledReads stalls_{watch_, seconds(10)};
  const StalledReads::Clock::time_point start_{};
};

TEST_F(StalledReadsTest, ReportsAReadAtGrowingIntervalsAndItsEnd) {
  std::optional<ReadWatch::Scope> read;
  read.emplace(&watch_, 1, 4096, 4ULL << 20);
  EXPECT_THAT(at(0), IsEmpty());
  EXPECT_THAT(at(9), IsEmpty());
  EXPECT_FALSE(stalls_.longest());
  EXPECT_THAT(at(10), ElementsAre(AllOf(HasSubstr("'/m/b.safetensors'"), HasSubstr("offset 4096"),
                                        HasSubstr("4.00 MiB"), HasSubstr("not ended after 10 s"))));
  EXPECT_EQ(stalls_.longest(), (wire::StalledRead{"/m/b.safetensors", 4096, 4ULL << 20, 10}));
  EXPECT_THAT(at(19), IsEmpty());
  EXPECT_EQ(stalls_.longest()->seconds, 19);
  EXPECT_THAT(at(20), ElementsAre(HasSubstr("20 s")));
  EXPECT_THAT(at(39), IsEmpty());
  EXPECT_THAT(at(41), ElementsAre(HasSubstr("41 s")));
  read.reset();
  EXPECT_THAT(at(43), ElementsAre(AllOf(HasSubstr("offset 4096"), HasSubstr(" ended after 43 s"))));
  EXPECT_FALSE(stalls_.longest());
  EXPECT_THAT(at(100), IsEmpty());
}

TEST_F(StalledReadsTest, KnowsTheNextReadOfTheSameThreadFromTheStalledOne) {
  std::optional<ReadWatch::Scope> read;
  read.emplace(&watch_, 0, 0, 100);
  at(0);
  EXPECT_THAT(at(12), ElementsAre(HasSubstr("12 s")));
  read.reset();
  read.emplace(&watch_, 0, 100, 100);
  EXPECT_THAT(at(13), ElementsAre(HasSubstr("ended after 13 s")));
  EXPECT_THAT(at(22), IsEmpty());
  EXPECT_THAT(at(23), ElementsAre(AllOf(HasSubstr("offset 100"), HasSubstr("10 s"))));
}

TEST_F(StalledReadsTest, SaysNothingOfManyQuickReads) {
  at(0);
  for (int second = 1; second < 60; ++second) {
    const ReadWatch::Scope read(&watch_, 0, static_cast<unsigned>(second), 1);
    EXPECT_THAT(at(second), IsEmpty());
  }
}

TEST_F(StalledReadsTest, SumsUpReadsThatStallTogether) {
  std::vector<std::unique_ptr<ReadWatch::Scope>> reads;
  for (unsigned i = 0; i < 3; ++i) {
    reads.push_back(std::make_unique<ReadWatch::Scope>(&watch_, 0, i, 1));
  }
  at(0);
  EXPECT_THAT(at(10), ElementsAre(HasSubstr("2 more reads likewise")));
  reads.clear();
  EXPECT_THAT(at(11), ElementsAre(HasSubstr("2 more reads likewise")));
}

TEST_F(StalledReadsTest, MoreReadsThanSlotsGoUnseen) {
  std::vector<std::unique_ptr<ReadWatch::Scope>> reads;
  for (std::size_t i = 0; i < ReadWatch::kSlots + 2; ++i) {
    reads.push_back(std::make_unique<ReadWatch::Scope>(&watch_, 0, i, 1));
  }
  at(0);
  EXPECT_THAT(at(10), ElementsAre(HasSubstr("127 more reads likewise")));
}

TEST(ReadWatch, NeverMixesTwoReads) {
  ReadWatch watch;
  std::atomic<int> reading{4};
  run_threads(5, [&](int index, const std::atomic<bool>&) {
    if (index == 4) {
      while (reading > 0) {
        for (std::size_t slot = 0; slot < ReadWatch::kSlots; ++slot) {
          if (const auto read = watch.look(slot)) {
            EXPECT_EQ(read->offset, read->bytes);
            EXPECT_EQ(read->offset % 4, read->file);
          }
        }
      }
      return;
    }
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const std::uint64_t value = i * 4 + static_cast<unsigned>(index);
      const ReadWatch::Scope read(&watch, static_cast<std::uint32_t>(index), value, value);
    }
    --reading;
  });
}

}  // namespace
}  // namespace preload
