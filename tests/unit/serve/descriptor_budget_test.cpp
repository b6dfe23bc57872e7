// SPDX-License-Identifier: Apache-2.0
#include "serve/descriptor_budget.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>

namespace preload {
namespace {

class Limit {
 public:
  explicit Limit(rlim_t descriptors) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = descriptors;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  ~Limit() { setrlimit(RLIMIT_NOFILE, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  rlimit before_{};
};

TEST(DescriptorBudget, LeavesRoomForEverythingThatHoldsOne) {
  const Limit limit(1024);
  EXPECT_EQ(artifact_capacity(), 128U);
  EXPECT_EQ(connection_capacity(), 256U);
  // Half of 1024 - 256 connections - 128 of the process, less slabs, manifest and artifacts: what
  // is handed over is needed twice.
  EXPECT_EQ(lease_capacity(256, 8), 320U - 8 - 1 - 128);
}

TEST(DescriptorBudget, IsOfTheHardLimitOnceThatWasAskedFor) {
  const Limit limit(256);
  rlimit now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  raise_descriptor_limit();
  rlimit raised{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &raised), 0);
  EXPECT_EQ(raised.rlim_cur, std::min<rlim_t>(now.rlim_max, 65536));
}

TEST(DescriptorBudget, IsNeverNothing) {
  const Limit limit(300);  // fewer than this binary has open at times would end it
  EXPECT_EQ(artifact_capacity(), 37U);
  EXPECT_EQ(connection_capacity(), 75U);
  EXPECT_EQ(lease_capacity(256, 8), 1U);
}

}  // namespace
}  // namespace preload
