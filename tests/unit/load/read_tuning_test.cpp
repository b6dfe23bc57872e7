// SPDX-License-Identifier: Apache-2.0
#include "load/read_tuning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "load/uring.hpp"
#include "support/temp_dir.hpp"

namespace preload {
namespace {

using testing::ElementsAre;

constexpr ReadTuning kPlain{ReadMethod::kPread, 12};
constexpr ReadTuning kMapped{ReadMethod::kMmap, 12};
constexpr ReadTuning kMany{ReadMethod::kPread, 16};

TEST(TuningsToTry, AreTheUsualAndWhatFlagsLeaveOpen) {
  TuningChoice choice{.usual_threads = 12, .most_threads = 16};
  EXPECT_THAT(tunings_to_try(choice), ElementsAre(kPlain, kMapped, kMany));
  choice.may_map = false;
  EXPECT_THAT(tunings_to_try(choice), ElementsAre(kPlain, kMany));
  choice.fixed_threads = true;
  EXPECT_THAT(tunings_to_try(choice), ElementsAre(kPlain));
  choice = {.usual_threads = 12, .most_threads = 16, .fixed_method = ReadMethod::kMmap};
  EXPECT_THAT(tunings_to_try(choice), ElementsAre(kMapped, ReadTuning{ReadMethod::kMmap, 16}));
}

TEST(TuningsToTry, PastTheCacheAreDirect) {
  for (const ReadTuning& tuning :
       tunings_to_try({.past_the_cache = true, .usual_threads = 8, .most_threads = 16})) {
    EXPECT_TRUE(tuning.method == ReadMethod::kDirect ||
                (tuning.method == ReadMethod::kUring && Uring::is_built()));
  }
}

// Takes `slow` times as long for every byte as the fastest.
TuningTrial trial(double pread, double mmap, double many, std::vector<ReadTuning>& seen) {
  return [=, &seen](const ReadTuning& tuning, std::uint64_t bytes) {
    seen.push_back(tuning);
    const double slow = tuning == kPlain ? pread : tuning == kMapped ? mmap : many;
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::micro>(slow * static_cast<double>(bytes) / 100));
    return bytes;
  };
}

TEST(ChooseTuning, TakesTheClearlyFastest) {
  std::vector<ReadTuning> seen;
  const ChosenTuning chosen =
      choose_tuning({kPlain, kMapped, kMany}, 100'000'000, trial(4, 1, 2, seen), 1'000'000);
  EXPECT_EQ(chosen.tuning, kMapped);
  EXPECT_TRUE(chosen.tried);
  EXPECT_THAT(seen, ElementsAre(kPlain, kMapped, kMany));
}

TEST(ChooseTuning, KeepsTheUsualWhereOthersGainNothing) {
  std::vector<ReadTuning> seen;
  EXPECT_EQ(
      choose_tuning({kPlain, kMapped, kMany}, 100'000'000, trial(1, 3, 2, seen), 1'000'000).tuning,
      kPlain);
}

TEST(ChooseTuning, TriesNothingWhereThereIsTooLittleToMeasure) {
  std::vector<ReadTuning> seen;
  const auto run = trial(1, 1, 1, seen);
  EXPECT_FALSE(choose_tuning({kPlain, kMapped, kMany}, 1 << 30, run).tried);
  EXPECT_FALSE(choose_tuning({kPlain}, std::uint64_t{1} << 40, run).tried);
  EXPECT_TRUE(seen.empty());
}

TEST(ChooseTuning, TakesThreePercentAtMostAndAboutASecond) {
  std::uint64_t taken = 0;
  const auto slow = [&](const ReadTuning&, std::uint64_t bytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    taken += bytes;
    return bytes;
  };
  const auto start = std::chrono::steady_clock::now();
  choose_tuning({kPlain, kMapped}, std::uint64_t{1} << 40, slow);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  taken = 0;
  const auto fast = [&](const ReadTuning&, std::uint64_t bytes) {
    taken += bytes;
    return bytes;
  };
  choose_tuning({kPlain, kMapped}, std::uint64_t{10} << 30, fast);
  EXPECT_LE(static_cast<double>(taken), 0.0301 * static_cast<double>(std::uint64_t{10} << 30));
}

class KeptTuning : public testing::Test {
 protected:
  test::TempDir directory_;
  const test::ScopedEnv root_{"PRELOAD_CACHE_ROOT", (directory_ / "cache").c_str()};
  const TuningKey key_{"host", 16, 42, false, true};
};

TEST_F(KeptTuning, IsFoundAgainByAllThatItDependsOn) {
  EXPECT_FALSE(recall_tuning(key_));
  remember_tuning(key_, kMapped);
  EXPECT_EQ(recall_tuning(key_), kMapped);
  TuningKey other = key_;
  other.past_the_cache = true;
  EXPECT_FALSE(recall_tuning(other));
  remember_tuning(other, kMany);
  EXPECT_EQ(recall_tuning(other), kMany);
  EXPECT_EQ(recall_tuning(key_), kMapped) << "others are kept";
  for (const TuningKey& unlike : {TuningKey{"elsewhere", 16, 42, false, true},
                                  {"host", 8, 42, false, true},
                                  {"host", 16, 43, false, true},
                                  {"host", 16, 42, false, false}}) {
    EXPECT_FALSE(recall_tuning(unlike));
  }
}

TEST_F(KeptTuning, ThatCannotBeReadIsNoError) {
  remember_tuning(key_, kMapped);
  for (const char* text : {"", "{", "[]", R"({"version": 99, "tunings": {}})",
                           R"({"version": 1, "tunings": {"x": 5}})"}) {
    directory_.write("cache/reading/tuning.json", text);
    EXPECT_FALSE(recall_tuning(key_)) << text;
  }
  remember_tuning(key_, kMany);
  EXPECT_EQ(recall_tuning(key_), kMany);
}

}  // namespace
}  // namespace preload
