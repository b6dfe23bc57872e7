// SPDX-License-Identifier: Apache-2.0
#include "run/state_keeper.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "support/no_room.hpp"
#include "support/temp_dir.hpp"

namespace preload::run {
namespace {

constexpr std::chrono::milliseconds kStalledAfter{700};

class StateKeeperTest : public testing::Test {
 protected:
  StateKeeperTest()
      : directory_(SocketDir::open(temp_ / "sockets", true)),
        group_(make_single_group()),
        supervision_(*group_, {}, cancel_) {
    StateFile state;
    state.job = "job-1";
    state.model = "a model";
    keeper_.emplace(directory_,
                    std::vector<StateKeeper::Kept>{{endpoint_, state, &progress_},
                                                   {draft_, state, &draft_progress_}},
                    0, supervision_, std::function<void(const std::string&)>(), kStalledAfter);
  }

  StateFile now() const { return now(endpoint_); }
  StateFile now(const Endpoint& endpoint) const {
    const auto state = read_state(directory_, endpoint.state_name());
    return state.value_or(StateFile());
  }

  bool eventually_shows(std::uint64_t bytes) const { return eventually_shows(endpoint_, bytes); }
  bool eventually_shows(const Endpoint& endpoint, std::uint64_t bytes) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (now(endpoint).progress.bytes != bytes && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return now(endpoint).progress.bytes == bytes;
  }

  const test::TempDir temp_;
  const SocketDir directory_;
  const Endpoint endpoint_{"host:0", "", Role::kTarget};
  const Endpoint draft_{"host:0", "", Role::kDraft};
  const Cancel cancel_;
  const std::unique_ptr<Group> group_;
  Supervision supervision_;
  LoadProgress progress_, draft_progress_;
  std::optional<StateKeeper> keeper_;
};

TEST_F(StateKeeperTest, LeavesTheFileOfWhomItSucceedsAloneUntilItIsReady) {
  StateFile old;
  old.state = "READY";
  old.job = "the old one";
  const Endpoint endpoint{"host:1", "", Role::kTarget};
  write_state(directory_, endpoint, old);
  LoadProgress progress;
  StateFile state;
  state.job = "the new one";
  const auto make = [&] {
    return std::make_unique<StateKeeper>(
        directory_, std::vector<StateKeeper::Kept>{{endpoint, state, &progress, true}}, 0,
        supervision_, std::function<void(const std::string&)>(), kStalledAfter);
  };
  const auto beside = [&] { return read_state(directory_, endpoint.next_state_name()); };
  {
    const auto keeper = make();
    ASSERT_TRUE(beside());
    EXPECT_EQ(beside()->state, "LOADING");
    EXPECT_EQ(beside()->job, "the new one");
    keeper->failed("checkpoint", "it failed", 3);
    EXPECT_EQ(beside()->state, "FAILED");
  }
  EXPECT_EQ(now(endpoint).job, "the old one");
  make()->stopped();
  EXPECT_EQ(now(endpoint).state, "READY");
  const auto keeper = make();
  std::promise<void> published;
  keeper->ready([&] { published.set_value(); });
  published.get_future().wait();
  EXPECT_EQ(now(endpoint).job, "the new one");
  EXPECT_FALSE(beside());
  keeper->handed_over(endpoint);
  keeper->stopped();
  EXPECT_EQ(now(endpoint).state, "READY") << "it is a successor's by now";
}

TEST_F(StateKeeperTest, SaysReadyLateRatherThanNeverWhenThereWasNoRoom) {
  const std::string path = temp_ / ("sockets/" + endpoint_.state_name());
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);  // nothing can be renamed to it: as good as a full disk
  std::promise<void> published;
  keeper_->ready([&] { published.set_value(); });
  published.get_future().wait();
  EXPECT_NE(now().state, "READY");
  std::filesystem::remove(path);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (now().state != "READY" && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(now().state, "READY");
}

TEST_F(StateKeeperTest, SaysWhatToDoWhereItCannotWriteFromTheStart) {
  const Endpoint endpoint{"host:1", "", Role::kTarget};
  const auto refusal = [&]() -> std::string {
    LoadProgress progress;
    try {
      const StateKeeper keeper(directory_, {{endpoint, StateFile(), &progress}}, 0, supervision_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kUsage);
      return error.what();
    }
    return "none: nobody could wait for it";
  };
  keeper_.reset();
  std::string text;
  {
    const test::NoRoom no_room;
    text = refusal();
  }
  EXPECT_THAT(text, testing::AllOf(testing::HasSubstr("make room"),
                                   testing::HasSubstr("--weight-cache-socket-dir")));

  const std::string path = temp_ / ("sockets/" + endpoint.state_name());
  std::filesystem::create_directory(path);
  EXPECT_EQ(refusal(), "'" + path + "' is a directory where a file is to be written: remove it");
}

TEST_F(StateKeeperTest, SaysLoadingAtOnceAndHowFarItIs) {
  EXPECT_EQ(now().state, "LOADING");
  EXPECT_EQ(now().job, "job-1");
  progress_.total_bytes = 100;
  progress_.bytes = 40;
  EXPECT_TRUE(eventually_shows(40));
  EXPECT_EQ(now().progress.total_bytes, 100U);
}

TEST_F(StateKeeperTest, SaysHowFastItIsAndHowLongItTakes) {
  progress_.total_bytes = 1 << 30;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!now().progress.seconds_left && std::chrono::steady_clock::now() < deadline) {
    progress_.bytes += 1 << 10;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const wire::Progress progress = now().progress;
  ASSERT_TRUE(progress.bytes_per_s && progress.seconds_left);
  EXPECT_GT(*progress.bytes_per_s, 0U);
  EXPECT_GT(*progress.seconds_left, 0);
  EXPECT_FALSE(progress.slowest_rank);
  EXPECT_FALSE(progress.stalled);
}

TEST_F(StateKeeperTest, ShowsAStalledReadUntilItEnds) {
  const auto shows = [&](bool stalled) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (now().progress.stalled.has_value() != stalled &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return now().progress.stalled.has_value() == stalled;
  };
  testing::internal::CaptureStderr();
  progress_.reads.set_paths({"/m/a.safetensors"});
  std::optional<ReadWatch::Scope> read;
  read.emplace(&progress_.reads, 0, 4096, 100);
  EXPECT_TRUE(shows(true));
  EXPECT_EQ(now().progress.stalled->file, "/m/a.safetensors");
  EXPECT_EQ(now().progress.stalled->offset, 4096U);
  read.reset();
  EXPECT_TRUE(shows(false));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("has not ended after"),
                             testing::HasSubstr("offset 4096 ended after")));
}

TEST_F(StateKeeperTest, SaysReadyBeforeItCallsBack) {
  std::promise<std::string> seen;
  keeper_->ready([&] { seen.set_value(now().state); });
  auto state = seen.get_future();
  ASSERT_EQ(state.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(state.get(), "READY");
}

TEST_F(StateKeeperTest, LeavesATombstoneAfterAFailure) {
  keeper_->failed("checkpoint", "a shard is short", 3);
  keeper_.reset();
  EXPECT_EQ(now().state, "FAILED");
  EXPECT_EQ(now().code, "checkpoint");
  EXPECT_EQ(now().text, "a shard is short");
  EXPECT_EQ(now().exit_status, 3);
}

TEST_F(StateKeeperTest, LeavesNothingAfterARequestedStop) {
  keeper_->stopped();
  EXPECT_FALSE(read_state(directory_, endpoint_.state_name()));
  EXPECT_FALSE(read_state(directory_, draft_.state_name()));
}

TEST_F(StateKeeperTest, KeepsAFileForEachRole) {
  progress_.total_bytes = 100;
  draft_progress_.total_bytes = 30;
  draft_progress_.bytes = 20;
  progress_.bytes = 40;
  EXPECT_TRUE(eventually_shows(40));
  EXPECT_TRUE(eventually_shows(draft_, 20));
  EXPECT_EQ(now(draft_).progress.total_bytes, 30U);
  EXPECT_EQ(now(draft_).role, "draft");
  keeper_->failed("checkpoint", "a shard is short", 3);
  EXPECT_EQ(now().text, "a shard is short");
  EXPECT_EQ(now(draft_).text, "a shard is short");
}

TEST_F(StateKeeperTest, LetsOneRoleGoAndKeepsTheOther) {
  keeper_->stopped(draft_);
  std::promise<void> ready;
  keeper_->ready([&] { ready.set_value(); });
  ASSERT_EQ(ready.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_EQ(now().state, "READY");
  EXPECT_FALSE(read_state(directory_, draft_.state_name()));
}

}  // namespace
}  // namespace preload::run
