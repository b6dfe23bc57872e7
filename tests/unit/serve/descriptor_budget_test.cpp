// SPDX-License-Identifier: Apache-2.0
#include "serve/descriptor_budget.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

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
  EXPECT_EQ(lease_capacity(256, 8), 504U);  // 1024 - 256 - 8 - 128 artifacts - 128 of the process
}

TEST(DescriptorBudget, IsNeverNothing) {
  const Limit limit(300);  // fewer than this binary has open at times would end it
  EXPECT_EQ(artifact_capacity(), 37U);
  EXPECT_EQ(lease_capacity(256, 8), 1U);
}

}  // namespace
}  // namespace preload
