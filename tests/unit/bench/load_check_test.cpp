// SPDX-License-Identifier: Apache-2.0
#include "bench/load_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/served_rows.hpp"
#include "unit/load/random_load.hpp"

namespace preload::bench {
namespace {

using preload::test::RandomLoad;
using testing::HasSubstr;

LoadResult expected_result(const RandomLoad& random) {
  LoadResult result;
  result.served = random.expected_served();
  result.sources = random.expected_regions();
  return result;
}

std::string refusal(LoadCheck& check, const LoadResult& result) {
  try {
    check.check(result);
  } catch (const Error& error) {
    EXPECT_EQ(exit_status(error.code()), 3);
    return error.what();
  }
  return "nothing was refused";
}

// A tensor with bytes of its own whose served hash comes from `origin`.
std::size_t find_tensor(const RandomLoad& random, ServedHash origin) {
  const std::vector<ServedHash> origins = served_hash_sources(random.program, random.plan);
  for (std::size_t t = 0; t < origins.size(); ++t) {
    if (origins[t] == origin && random.plan.slabs.placements[t].bytes > 0) return t;
  }
  ADD_FAILURE() << "no such tensor";
  return 0;
}

TEST(LoadCheck, TakesWhatAnyProgramMustGiveRunAfterRun) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const RandomLoad random(seed);
    LoadCheck check(random.plan, random.program, random.checkpoint, 2);
    EXPECT_EQ(check.tensors(), random.program.tensors.size());
    check.check(expected_result(random));
    check.check(expected_result(random));
  }
}

TEST(LoadCheck, NamesTheTensorThatDiffersFromTheFiles) {
  const RandomLoad random(5);
  LoadCheck check(random.plan, random.program, random.checkpoint, 2);
  const std::size_t t = find_tensor(random, ServedHash::kCopies);
  LoadResult result = expected_result(random);
  result.served[t] += Hash128{1, 0};
  EXPECT_THAT(refusal(check, result), HasSubstr("tensor " + random.program.tensors[t].name + ": "));
}

TEST(LoadCheck, NamesTheTensorThatDiffersBetweenRuns) {
  const RandomLoad random(6);
  LoadCheck check(random.plan, random.program, random.checkpoint, 2);
  const std::size_t t = find_tensor(random, ServedHash::kAfterLoad);
  check.check(expected_result(random));
  LoadResult result = expected_result(random);
  result.served[t] += Hash128{1, 0};
  const std::string text = refusal(check, result);
  EXPECT_THAT(text, HasSubstr("tensor " + random.program.tensors[t].name + ": "));
  EXPECT_THAT(text, HasSubstr("in the run before"));
}

TEST(LoadCheck, NamesTheSourceThatWasReadWrong) {
  const RandomLoad random(7);
  LoadCheck check(random.plan, random.program, random.checkpoint, 2);
  LoadResult result = expected_result(random);
  for (SourceRegion& read : result.sources) read.hash += Hash128{1, 0};
  EXPECT_THAT(refusal(check, result), HasSubstr("what was read of "));
}

}  // namespace
}  // namespace preload::bench
