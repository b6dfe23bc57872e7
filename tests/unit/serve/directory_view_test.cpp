// SPDX-License-Identifier: Apache-2.0
#include "serve/directory_view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.hpp"
#include "serve/job_view.hpp"
#include "unit/serve/live_server.hpp"

namespace preload {
namespace {

using testing::HasSubstr;
using wire::DaemonState;

const Endpoint kHost0{"host:0", "", Role::kTarget};
const Endpoint kHost1{"host:1", "", Role::kTarget};

StateFile state_of(const std::string& state, const std::string& job, std::int64_t time_ms = 0) {
  StateFile file;
  file.state = state;
  file.job = job;
  file.time_ms = time_ms;
  file.progress.bytes = 30;
  file.progress.total_bytes = 120;
  return file;
}

StateFile tombstone(const std::string& job, std::int64_t time_ms = 0) {
  StateFile file = state_of("FAILED", job, time_ms);
  file.code = "checkpoint";
  file.text = "a shard is missing";
  file.exit_status = 3;
  return file;
}

TEST(DirectoryView, OfAnEmptyDirectoryIsEmpty) {
  const TempDir temp;
  EXPECT_TRUE(view_directory(temp.open()).empty());
}

TEST(DirectoryView, BelievesASocketThatAnswers) {
  LiveServer live;
  live.start();
  const auto views = view_directory(live.directory());
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].condition, DaemonCondition::kAnswering);
  EXPECT_EQ(views[0].status().state, DaemonState::kReady);
  EXPECT_EQ(views[0].name(), "host:0");
}

TEST(DirectoryView, AHeldLockMeansThatADaemonIsComing) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kHost0);
  auto views = view_directory(directory);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].condition, DaemonCondition::kComing);
  EXPECT_FALSE(views[0].file);
  write_state(directory, kHost0, state_of("LOADING", "j"));
  views = view_directory(directory);
  ASSERT_EQ(views.size(), 1U);
  const wire::DaemonStatus status = views[0].status();
  EXPECT_EQ(status.state, DaemonState::kLoading);
  EXPECT_EQ(status.gpu_uuid, "host:0");
  EXPECT_EQ(status.job, "j");
  EXPECT_DOUBLE_EQ(status.progress.share(), 0.25);
  EXPECT_EQ(status.bytes, 120U);
}

TEST(DirectoryView, ReadyInAFileIsNotBelieved) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kHost0);
  write_state(directory, kHost0, state_of("READY", "j"));
  EXPECT_EQ(view_directory(directory)[0].status().state, DaemonState::kLoading);
}

TEST(DirectoryView, AStateUnderAFreeLockIsADeadDaemon) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  { const Fd lock = take_lock(directory, kHost0); }
  write_state(directory, kHost0, state_of("LOADING", "j"));
  const auto views = view_directory(directory);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].condition, DaemonCondition::kDead);
  EXPECT_EQ(views[0].status().state, DaemonState::kFailed);
  EXPECT_THAT(views[0].status().text, HasSubstr("ended without a word"));
}

TEST(DirectoryView, ATombstoneTellsWhy) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  write_state(directory, kHost0, tombstone("j"));
  const auto views = view_directory(directory);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].condition, DaemonCondition::kFailed);
  EXPECT_EQ(views[0].status().code, "checkpoint");
  EXPECT_EQ(views[0].status().text, "a shard is missing");
}

TEST(DirectoryView, APredecessorsFileUnderAHeldLockSaysNothing) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  StateFile old = tombstone("old");
  old.pid = ::getpid() + 1;
  write_state(directory, kHost0, old);
  const Fd lock = take_lock(directory, kHost0);
  const auto views = view_directory(directory);
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].condition, DaemonCondition::kComing);
  EXPECT_FALSE(views[0].file);
}

TEST(DirectoryView, LeftoversAreNobody) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  { const Fd lock = take_lock(directory, kHost0); }
  { const Fd gone = listen_at(directory, kHost1.socket_name()); }
  StateFile earlier = state_of("LOADING", "j");
  earlier.boot_id = "00000000-0000-0000-0000-000000000000";
  write_state(directory, {"host:2", "", Role::kTarget}, earlier);
  for (const char* name : {"keeper.lock", "keeper.sock", "0123456789abcdef.next.lock",
                           ".0123456789abcdef.state.1.tmp", "notes.txt"})
    std::ofstream(temp.file(name));
  EXPECT_TRUE(view_directory(directory).empty());
}

TEST(DirectoryView, FilterGoesByNameBeforeADaemonHasSpoken) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd a = take_lock(directory, {"host:0", "", Role::kTarget});
  const Fd b = take_lock(directory, {"host:0", "blue", Role::kTarget});
  const Fd c = take_lock(directory, {"host:0", "blue", Role::kDraft});
  const Fd d = take_lock(directory, {"host:1", "", Role::kTarget});
  const auto count = [&](const DaemonFilter& filter) {
    return view_directory(directory, filter).size();
  };
  EXPECT_EQ(count({}), 4U);
  EXPECT_EQ(count({"host:0", std::nullopt, std::nullopt}), 3U);
  EXPECT_EQ(count({"host:0", "blue", std::nullopt}), 2U);
  EXPECT_EQ(count({"host:0", "", std::nullopt}), 1U);
  EXPECT_EQ(count({std::nullopt, std::nullopt, Role::kDraft}), 1U);
  EXPECT_EQ(count({"host:2", std::nullopt, std::nullopt}), 0U);
}

TEST(DirectoryView, APlantedSocketIsAnError) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  std::ofstream(temp.file(kHost0.socket_name()));
  EXPECT_THROW(view_directory(directory), Error);
}

TEST(JobView, OfNothingIsNothing) {
  const TempDir temp;
  const JobView view = view_job(view_directory(temp.open()), std::nullopt, std::nullopt);
  EXPECT_EQ(view.verdict, JobView::Verdict::kNothing);
}

TEST(JobView, IsReadyWhenAsManyAnswerAsWereAnnounced) {
  Residency residency = sample_residency();
  residency.local_size = 2;
  LiveServer live(std::move(residency));
  live.start();
  const auto views = view_directory(live.directory());
  EXPECT_EQ(view_job(views, std::nullopt, std::nullopt).verdict, JobView::Verdict::kPending);
  EXPECT_EQ(view_job(views, std::nullopt, 1).verdict, JobView::Verdict::kReady);
  EXPECT_EQ(view_job(views, "job-1", 1).verdict, JobView::Verdict::kReady);
  EXPECT_EQ(view_job(views, "job-2", 1).verdict, JobView::Verdict::kNothing);
}

// A draft lies on the ranks of one stage only: each role announces its own number.
TEST(JobView, CountsTheDaemonsOfEachRole) {
  const auto ready = [](const char* role, int local_size) {
    DaemonView view;
    view.condition = DaemonCondition::kAnswering;
    view.live = wire::DaemonStatus{};
    view.live->role = role;
    view.live->job = "j";
    view.live->state = DaemonState::kReady;
    view.live->local_size = local_size;
    return view;
  };
  std::vector<DaemonView> views{ready("target", 2), ready("target", 2)};
  EXPECT_EQ(view_job(views, "j", std::nullopt).verdict, JobView::Verdict::kReady);
  views.push_back(ready("draft", 1));
  EXPECT_EQ(view_job(views, "j", std::nullopt).verdict, JobView::Verdict::kReady);
  EXPECT_THAT(view_job(views, "j", std::nullopt).text, HasSubstr("3 of 3"));
  views[0].live->state = DaemonState::kLoading;
  EXPECT_EQ(view_job(views, "j", std::nullopt).verdict, JobView::Verdict::kPending);
  views = {ready("target", 2), ready("target", 2), ready("draft", 2)};
  EXPECT_EQ(view_job(views, "j", std::nullopt).verdict, JobView::Verdict::kPending);
  EXPECT_EQ(view_job({ready("target", 2), ready("draft", 2)}, "j", 1).verdict,
            JobView::Verdict::kReady);  // of one GPU
}

TEST(JobView, IsPendingUntilTheJobIsAdmitted) {
  LiveServer live(sample_residency(), {}, false);
  live.start();
  EXPECT_EQ(view_job(view_directory(live.directory()), std::nullopt, std::nullopt).verdict,
            JobView::Verdict::kPending);
}

TEST(JobView, FailsWithTheTombstonesStatus) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  write_state(directory, kHost0, tombstone("j"));
  const JobView view = view_job(view_directory(directory), std::nullopt, std::nullopt);
  EXPECT_EQ(view.verdict, JobView::Verdict::kFailed);
  EXPECT_EQ(view.exit_status, 3);
  EXPECT_EQ(view.code, "checkpoint");
  EXPECT_THAT(view.text, HasSubstr("a shard is missing"));
}

TEST(JobView, TheNewestJobCounts) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  write_state(directory, kHost0, tombstone("old", 1000));
  const Fd lock = take_lock(directory, kHost1);
  write_state(directory, kHost1, state_of("LOADING", "new", 2000));
  const auto views = view_directory(directory);
  EXPECT_EQ(view_job(views, std::nullopt, std::nullopt).job, "new");
  EXPECT_EQ(view_job(views, std::nullopt, std::nullopt).verdict, JobView::Verdict::kPending);
  EXPECT_EQ(view_job(views, "old", std::nullopt).verdict, JobView::Verdict::kFailed);
}

TEST(JobView, ALockWithoutAStateMayBeANewerJob) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  write_state(directory, kHost0, tombstone("old", 1000));
  const Fd lock = take_lock(directory, kHost1);
  EXPECT_EQ(view_job(view_directory(directory), std::nullopt, std::nullopt).verdict,
            JobView::Verdict::kPending);
}

TEST(JobView, SaysThatADaemonDied) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  write_state(directory, kHost0, state_of("LOADING", "j"));
  EXPECT_EQ(view_job(view_directory(directory), std::nullopt, std::nullopt).verdict,
            JobView::Verdict::kDead);
}

TEST(JobView, AReleasedDaemonWillNotBecomeReady) {
  LiveServer live;
  live.start();
  wire::call_release(live.connect().get(), {}, 5000);
  EXPECT_EQ(view_job(view_directory(live.directory()), std::nullopt, std::nullopt).verdict,
            JobView::Verdict::kReleased);
}

}  // namespace
}  // namespace preload
