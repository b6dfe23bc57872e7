// SPDX-License-Identifier: Apache-2.0
#include "run/supervision.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "world.hpp"

namespace preload::run {
namespace {

using testing_mpi::world;

// What this rank hears over the channel.
class Heard {
 public:
  JobEvents events() {
    JobEvents events;
    events.ready = [this] { note([this] { ready_ = true; }); };
    events.failed = [this](const JobFailure& failure) { note([&] { failure_ = failure; }); };
    events.stop = [this] { note([this] { stop_ = true; }); };
    return events;
  }
  bool ready() {
    return wait([this] { return ready_; });
  }
  bool stop() {
    return wait([this] { return stop_; });
  }
  std::optional<JobFailure> failure() {
    wait([this] { return failure_.has_value(); });
    return failure_;
  }

 private:
  template <class Change>
  void note(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false, stop_ = false;
  std::optional<JobFailure> failure_;
};

TEST(Supervision, MakesTheJobReadyAndStopsItOverProcesses) {
  const Cancel cancel;
  Heard heard;
  Supervision supervision(world(), heard.events(), cancel);
  supervision.bound();
  EXPECT_TRUE(heard.ready());
  if (world().rank() == world().size() - 1) supervision.request_stop();
  EXPECT_TRUE(heard.stop());
  supervision.bye();
  world().barrier({"a test", cancel});
}

TEST(Supervision, CarriesAFailureToEveryProcess) {
  if (world().size() == 1) GTEST_SKIP() << "needs several ranks";
  const Cancel cancel;
  Heard heard;
  const int failing = world().size() - 1;
  {
    Supervision supervision(world(), heard.events(), cancel);
    if (world().rank() == failing) {
      EXPECT_EQ(supervision.fail(3, "a shard is short"),
                (JobFailure{failing, 3, "a shard is short"}));
    } else {
      EXPECT_EQ(heard.failure(), (JobFailure{failing, 3, "a shard is short"}));
    }
  }
  world().barrier({"a test", cancel});
}

TEST(Supervision, OfAWorldOfOneListensNowhereAndAnswersItself) {
  const Cancel cancel;
  const auto alone = make_single_group();
  Heard heard;
  Supervision supervision(*alone, heard.events(), cancel);
  supervision.bound();
  EXPECT_TRUE(heard.ready());
  EXPECT_TRUE(supervision.progress().empty());
  EXPECT_FALSE(supervision.slowest_rank());
  EXPECT_EQ(supervision.fail(6, "busy"), std::nullopt);
}

}  // namespace
}  // namespace preload::run
