// SPDX-License-Identifier: Apache-2.0
#include "comm/job_channel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/job_message.hpp"
#include "comm/tcp.hpp"
#include "serve/socket_dir.hpp"

namespace preload {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// Short enough for a test, long enough for a loaded machine.
constexpr JobTimings kQuick{milliseconds(100), milliseconds(1500), milliseconds(700),
                            milliseconds(3000), milliseconds(4000)};
constexpr milliseconds kSoon{5000};

// A rank and what it heard.
class Rank {
 public:
  Rank(const HubAddress& address, int rank, JobTimings timings = kQuick)
      : member_(std::make_unique<JobMember>(
            address, rank,
            JobEvents{[this] { note([&] { ++readies_; }); },
                      [this](const JobFailure& f) { note([&] { failures_.push_back(f); }); },
                      [this] { note([&] { ++stops_; }); }},
            timings)) {}

  JobMember& operator*() { return *member_; }
  JobMember* operator->() { return member_.get(); }
  void vanish() { member_.reset(); }  // no goodbye

  bool hears_ready(milliseconds within = kSoon) {
    return wait([this] { return readies_ > 0; }, within);
  }
  bool hears_stop() {
    return wait([this] { return stops_ > 0; }, kSoon);
  }
  std::optional<JobFailure> hears_failure(milliseconds within = kSoon) {
    if (!wait([this] { return !failures_.empty(); }, within)) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return failures_.front();
  }
  std::size_t failures() {
    const std::lock_guard lock(mutex_);
    return failures_.size();
  }

 private:
  void note(const std::function<void()>& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  bool wait(const std::function<bool()>& condition, milliseconds within) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, within, condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int readies_ = 0, stops_ = 0;
  std::vector<JobFailure> failures_;
  std::unique_ptr<JobMember> member_;
};

void nobody_else(const JobFailure&) {}

// True when the hub closes `socket` within `limit`.
bool is_closed(int socket, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  std::array<char, 512> bytes{};
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd polled{socket, POLLIN, 0};
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) <= 0) return false;
    const ssize_t got = recv(socket, bytes.data(), bytes.size(), 0);
    if (got <= 0) return true;
  }
}

void send_text(int socket, std::string_view bytes) {
  ASSERT_EQ(send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST(JobChannel, IsReadyOnlyWhenEveryRankIsBound) {
  JobHub hub(3, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1), two(hub.address(), 2);
  zero->bound();
  two->bound();
  EXPECT_FALSE(two.hears_ready(milliseconds(300)));
  one->bound();
  EXPECT_TRUE(zero.hears_ready());
  EXPECT_TRUE(one.hears_ready());
  EXPECT_TRUE(two.hears_ready());
}

TEST(JobChannel, TellsEveryOtherRankOfAFailureWithItsStatusAndText) {
  JobHub hub(3, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1), two(hub.address(), 2);
  const auto verdict = two->fail(3, "model.safetensors is short by 4096 bytes");
  EXPECT_EQ(verdict, (JobFailure{2, 3, "model.safetensors is short by 4096 bytes"}));
  EXPECT_EQ(zero.hears_failure(), verdict);
  EXPECT_EQ(one.hears_failure(), verdict);
  EXPECT_EQ(two.failures(), 0U);
}

TEST(JobChannel, MakesTheFirstFailureTheJobs) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  one->fail(4, "out of memory");
  EXPECT_EQ(zero->fail(3, "later"), (JobFailure{1, 4, "out of memory"}));
}

TEST(JobChannel, TellsItsOwnProcessOfAFailureBeforeAnyRankHearsOfIt) {
  std::promise<JobFailure> told;
  std::promise<void> logged;
  JobHub hub(
      2,
      [&](const JobFailure& failure) {
        told.set_value(failure);
        logged.get_future().wait();
      },
      kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  auto verdict = std::async(std::launch::async, [&] { return one->fail(3, "a shard is short"); });
  EXPECT_EQ(told.get_future().get(), (JobFailure{1, 3, "a shard is short"}));
  EXPECT_FALSE(zero.hears_failure(milliseconds(200)));
  EXPECT_EQ(verdict.wait_for(milliseconds(0)), std::future_status::timeout);
  logged.set_value();
  EXPECT_TRUE(zero.hears_failure());
  EXPECT_EQ(verdict.get(), (JobFailure{1, 3, "a shard is short"}));
}

TEST(JobChannel, TakesTheWordOfARankForWhereAFailureHappened) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  EXPECT_EQ(one->fail(4, "no memory", 0), (JobFailure{0, 4, "no memory"}));
  EXPECT_EQ(zero.hears_failure(), (JobFailure{0, 4, "no memory"}));
}

TEST(JobChannel, GivesNoVerdictWhereTheHubDoesNotAnswer) {
  auto hub = std::make_unique<JobHub>(2, nobody_else, kQuick);
  Rank zero(hub->address(), 0), one(hub->address(), 1);
  hub.reset();
  EXPECT_EQ(one->fail(3, "to nobody"), std::nullopt);
}

TEST(JobChannel, KeepsTheFirstFailureForARankThatFailsWhenTheHubIsGone) {
  auto hub = std::make_unique<JobHub>(2, nobody_else, kQuick);
  Rank zero(hub->address(), 0), one(hub->address(), 1);
  zero->fail(3, "the first");
  ASSERT_TRUE(one.hears_failure());
  zero.vanish();
  hub.reset();
  EXPECT_EQ(one->fail(3, "the second"), (JobFailure{0, 3, "the first"}));
}

TEST(JobChannel, TellsARankThatConnectsAfterTheFailure) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0);
  zero->fail(3, "early");
  Rank one(hub.address(), 1);
  ASSERT_TRUE(one.hears_failure());
  EXPECT_EQ(one.hears_failure()->text, "early");
}

TEST(JobChannel, TakesAConnectionLostWithoutGoodbyeForAFailure) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  const auto start = Clock::now();
  one.vanish();
  const auto failure = zero.hears_failure();
  ASSERT_TRUE(failure);
  EXPECT_LT(Clock::now() - start, kQuick.lost);  // the closed connection, not the silence
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->status, 1);
  EXPECT_TRUE(failure->lost);
  EXPECT_THAT(failure->text, HasSubstr("rank 1 was lost"));
}

// An authenticated rank that never sends a heartbeat, as a frozen host would.
Fd frozen_rank(const HubAddress& address, int rank) {
  Fd socket = connect_tcp("127.0.0.1", address.port, milliseconds(2000));
  JobConnection connection{duplicate(socket.get())};
  std::vector<JobMessage> messages;
  while (messages.empty()) {
    pollfd polled{socket.get(), POLLIN, 0};
    if (poll(&polled, 1, 2000) != 1 || !connection.read(messages, kMaxStrangerBytes)) return {};
  }
  JobMessage hello;
  hello.type = JobMessage::Type::kHello;
  hello.rank = rank;
  hello.nonce = random_hex(16);
  hello.proof = make_proof(address.secret_hex, Prover::kRank, messages[0].nonce, hello.nonce, rank);
  connection.queue(hello);
  return connection.flush() ? std::move(socket) : Fd();
}

TEST(JobChannel, NoticesARankThatFallsSilent) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0);
  const Fd frozen = frozen_rank(hub.address(), 1);
  ASSERT_TRUE(frozen);
  const auto start = Clock::now();
  const auto failure = zero.hears_failure();
  ASSERT_TRUE(failure);
  EXPECT_GE(Clock::now() - start, kQuick.lost - kQuick.heartbeat);
  EXPECT_THAT(failure->text, HasSubstr("rank 1 was lost: nothing was heard"));
}

// Says that it is bound, once it is in.
void bind_frozen(const Fd& frozen) {
  JobConnection connection{duplicate(frozen.get())};
  JobMessage bound;
  bound.type = JobMessage::Type::kBound;
  connection.queue(bound);
  ASSERT_TRUE(connection.flush());
}

// A job that is READY, of rank 0 and one that is silent from then on.
class SilentRank : public testing::Test {
 protected:
  void SetUp() override {
    frozen_ = frozen_rank(hub.address(), 1);
    ASSERT_TRUE(frozen_);
    zero->bound();
    bind_frozen(frozen_);
    ASSERT_TRUE(zero.hears_ready());
  }

  JobHub hub{2, nobody_else, kQuick};
  Rank zero{hub.address(), 0};

 private:
  Fd frozen_;
};

TEST_F(SilentRank, IsBorneWithForLongerOnceTheJobIsReady) {
  const auto start = Clock::now();
  EXPECT_FALSE(zero.hears_failure(kQuick.lost + milliseconds(700)));
  const auto failure = zero.hears_failure();
  ASSERT_TRUE(failure);
  EXPECT_GE(Clock::now() - start, kQuick.lost_when_ready - milliseconds(500));
}

TEST_F(SilentRank, IsNotLeftBehindByAStopOfTheJob) {
  zero->request_stop();
  ASSERT_TRUE(zero.hears_stop());
  zero->bye();
  const auto hangs = hub.await_goodbyes(kQuick.lost + kSoon);
  ASSERT_TRUE(hangs);
  EXPECT_EQ(hangs->rank, 1);
  EXPECT_EQ(hangs->status, 1);
  EXPECT_TRUE(hangs->lost);
}

TEST(JobChannel, AStopOfTheJobIsOverWhenEveryRankHasSaidGoodbye) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  zero->request_stop();
  ASSERT_TRUE(one.hears_stop());
  one->bye();
  zero->bye();
  const auto start = Clock::now();
  EXPECT_EQ(hub.await_goodbyes(kSoon), std::nullopt);
  EXPECT_LT(Clock::now() - start, kSoon / 2);
}

TEST(JobChannel, KeepsARankThatIsSlowButAlive) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  zero->bound();
  EXPECT_FALSE(zero.hears_failure(kQuick.lost * 2));
  one->bound();
  EXPECT_TRUE(zero.hears_ready());
}

TEST(JobChannel, NoticesThatTheHubIsLost) {
  std::optional<Rank> one;
  {
    // A hub that dies: its listener and connections go with no goodbye.
    TcpListener listener = listen_tcp();
    HubAddress address{{}, current_boot_id(), listener.port, random_hex(32)};
    std::thread dying([&] {
      pollfd polled{listener.socket.get(), POLLIN, 0};
      poll(&polled, 1, 2000);
      JobConnection connection(accept_tcp(listener.socket.get()));
      JobMessage challenge;
      challenge.type = JobMessage::Type::kChallenge;
      challenge.nonce = "00";
      connection.queue(challenge);
      connection.flush();
      std::vector<JobMessage> messages;
      while (messages.empty()) {
        pollfd reply{connection.fd(), POLLIN, 0};
        if (poll(&reply, 1, 2000) != 1 || !connection.read(messages, kMaxStrangerBytes)) return;
      }
      JobMessage welcome;
      welcome.type = JobMessage::Type::kWelcome;
      welcome.proof = make_proof(address.secret_hex, Prover::kHub, "00", messages[0].nonce, 1);
      connection.queue(welcome);
      connection.flush();
    });
    one.emplace(address, 1);
    dying.join();
  }
  const auto failure = one->hears_failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, 1);
  EXPECT_THAT(failure->text, HasSubstr("rank 0 was lost"));
}

TEST(JobChannel, StopsEveryRankWhenOneAsks) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  one->request_stop();
  EXPECT_TRUE(zero.hears_stop());
  EXPECT_TRUE(one.hears_stop());
  one->bye();
  one.vanish();
  zero->bye();
  EXPECT_EQ(zero.failures(), 0U);
}

TEST(JobChannel, LetsARankLeaveThatWasAskedTo) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  zero->bound();
  one->bound();
  ASSERT_TRUE(zero.hears_ready());
  one->bye();
  one.vanish();
  EXPECT_FALSE(zero.hears_failure(milliseconds(500)));
}

TEST(JobChannel, LetsRanksThatEndWaitForEachOther) {
  JobHub hub(3, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1), two(hub.address(), 2);
  one->fail(143, "ended by SIGTERM");
  std::atomic<bool> together{false};
  std::thread first([&] {
    one->await_others(milliseconds(60'000));
    EXPECT_TRUE(together) << "it left before the others";
  });
  std::thread second([&] { zero->await_others(milliseconds(60'000)); });
  std::this_thread::sleep_for(milliseconds(200));
  together = true;
  two->await_others(milliseconds(60'000));
  first.join();
  second.join();
}

TEST(JobChannel, TellsEveryRankWhenAllWarmUpsAreOverAndHowManyWereInVain) {
  JobHub hub(3, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1), two(hub.address(), 2);
  const Cancel nothing;
  std::atomic<int> over{0};
  std::optional<int> of_zero, of_one;
  std::thread first([&] {
    of_zero = zero->await_warm_ups(true, nothing, milliseconds(60'000));
    ++over;
  });
  std::thread second([&] {
    of_one = one->await_warm_ups(false, nothing, milliseconds(60'000));
    ++over;
  });
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(over, 0) << "the third has not said a word";
  EXPECT_EQ(two->await_warm_ups(true, nothing, milliseconds(60'000)), 1);
  first.join();
  second.join();
  EXPECT_EQ(of_zero, 1);
  EXPECT_EQ(of_one, 1);
}

TEST(JobChannel, DoesNotWaitForWarmUpsOnceTheRankIsToEnd) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  Cancel cancel;
  cancel.request({143, "asked to"});
  EXPECT_EQ(zero->await_warm_ups(true, cancel, milliseconds(60'000)), std::nullopt);
  const Cancel nothing;
  EXPECT_EQ(one->await_warm_ups(true, nothing, milliseconds(60'000)), 0) << "zero's is over";
}

TEST(JobChannel, BoundsTheWaitForAWarmUp) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  const Cancel nothing;
  EXPECT_EQ(zero->await_warm_ups(true, nothing, milliseconds(200)), std::nullopt);
}

TEST(JobChannel, DoesNotLetRanksThatEndWaitForOneThatIsGone) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  one.vanish();
  zero->await_others(milliseconds(60'000));  // or the test runs into its limit
  ASSERT_TRUE(zero.hears_failure());
}

TEST(JobChannel, BoundsTheWaitForARankThatDoesNotEnd) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  const auto start = Clock::now();
  zero->await_others(milliseconds(300));
  EXPECT_GE(Clock::now() - start, milliseconds(300));
}

TEST(JobChannel, TakesAGoodbyeBeforeReadyForAFailure) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  one->bye();
  const auto failure = zero.hears_failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, 1);
  EXPECT_EQ(failure->rank, 1);
}

TEST(JobChannel, LeavesTheOthersServingWhenRankZeroAloneIsStopped) {
  auto hub = std::make_unique<JobHub>(2, nobody_else, kQuick);
  Rank zero(hub->address(), 0), one(hub->address(), 1);
  zero->bound();
  one->bound();
  ASSERT_TRUE(one.hears_ready());
  testing::internal::CaptureStderr();
  zero->bye();
  zero.vanish();
  hub.reset();
  EXPECT_FALSE(one.hears_failure(kQuick.lost + milliseconds(300)));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("without supervision"));
  const auto start = Clock::now();
  one->bye();  // nobody is there to wait for
  EXPECT_LT(Clock::now() - start, milliseconds(500));
}

TEST(JobChannel, TellsHowFarEveryRankIsAndWhichIsSlowest) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  const RankProgress of_zero{0, 0, 90, 100, 7}, of_one{1, 1, 20, 100, 5};
  zero->set_progress(of_zero);
  one->set_progress(of_one);
  const auto both = testing::UnorderedElementsAre(of_zero, of_one);
  // What the hub hears and what it tells travel apart: each is waited for.
  const auto all_told = [&] {
    return testing::Value(hub.progress(), both) && zero->slowest_rank() == 1 &&
           one->slowest_rank() == 1;
  };
  const auto deadline = Clock::now() + kSoon;
  while (!all_told() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(zero->slowest_rank(), 1);
  EXPECT_EQ(one->slowest_rank(), 1);
  EXPECT_THAT(hub.progress(), both);
}

TEST(JobChannel, RefusesARankThatDoesNotKnowTheSecret) {
  JobHub hub(2, nobody_else, kQuick);
  HubAddress wrong = hub.address();
  wrong.secret_hex = random_hex(32);
  try {
    JobMember member(wrong, 1, {},
                     {kQuick.heartbeat, kQuick.lost, kQuick.authentication, milliseconds(300)});
    FAIL() << "let in";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kLauncher);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 cannot reach rank 0's job channel"));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr(wrong.secret_hex)));
  }
}

TEST(JobChannel, RefusesASecondConnectionOfARank) {
  JobHub hub(2, nobody_else, kQuick);
  Rank one(hub.address(), 1);
  EXPECT_THROW(JobMember(hub.address(), 1, {},
                         {kQuick.heartbeat, kQuick.lost, kQuick.authentication, milliseconds(300)}),
               Error);
  EXPECT_FALSE(one.hears_failure(milliseconds(200)));
}

TEST(JobChannel, DropsASilentStrangerAndServesRanksMeanwhile) {
  JobHub hub(2, nobody_else, kQuick);
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(connect_tcp("127.0.0.1", hub.address().port, milliseconds(2000)));
  }
  const auto start = Clock::now();
  Rank zero(hub.address(), 0), one(hub.address(), 1);
  zero->bound();
  one->bound();
  EXPECT_TRUE(zero.hears_ready());
  EXPECT_LT(Clock::now() - start, milliseconds(1000));
  for (const Fd& stranger : strangers) EXPECT_TRUE(is_closed(stranger.get(), milliseconds(3000)));
}

TEST(JobChannel, DropsGarbageAtOnce) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0);
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    std::string garbage(512, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    const Fd stranger = connect_tcp("127.0.0.1", hub.address().port, milliseconds(2000));
    send_text(stranger.get(), garbage);
    EXPECT_TRUE(is_closed(stranger.get(), kQuick.authentication * 3));
  }
  const Fd huge = connect_tcp("127.0.0.1", hub.address().port, milliseconds(2000));
  send_text(huge.get(), std::string_view("\xff\xff\xff\xff{", 5));
  EXPECT_TRUE(is_closed(huge.get(), kQuick.authentication / 2));
  const Fd half = connect_tcp("127.0.0.1", hub.address().port, milliseconds(2000));
  send_text(half.get(), std::string_view("\x40\0\0\0{\"type\":", 12));
  EXPECT_TRUE(is_closed(half.get(), kQuick.authentication * 3));
  EXPECT_EQ(zero.failures(), 0U);
}

TEST(JobChannel, DropsAStrangerThatSkipsTheProof) {
  JobHub hub(2, nobody_else, kQuick);
  Rank zero(hub.address(), 0);
  JobMessage failed;
  failed.type = JobMessage::Type::kFailed;
  failed.status = 9;
  const Fd stranger = connect_tcp("127.0.0.1", hub.address().port, milliseconds(2000));
  send_text(stranger.get(), encode_frame(failed));
  EXPECT_TRUE(is_closed(stranger.get(), kQuick.authentication / 2));
  EXPECT_FALSE(zero.hears_failure(milliseconds(200)));
}

}  // namespace
}  // namespace preload
