// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>

#include "serve/predecessor.hpp"
#include "unit/serve/live_server.hpp"
#include "unit/wire/socket_pair.hpp"

namespace preload {
namespace {

using testing::HasSubstr;
using Step = wire::HandoverRequest::Step;
constexpr auto kSoon = std::chrono::seconds(20);
constexpr int kTimeoutMs = 20000;
const Endpoint kPlace{"host:0", "", Role::kTarget};

// A daemon with the lock of its place, on a thread of its own, that ends once handed over.
class Running {
 public:
  Running(const SocketDir& directory, Residency residency, Predecessor* predecessor = nullptr,
          Fd lock = Fd(), Inheritance inheritance = {})
      : lock_(lock ? std::move(lock) : take_lock(directory, kPlace)) {
    ServerOptions options;
    options.lock = lock_.get();
    options.predecessor = predecessor;
    server_.emplace(directory, std::move(residency), std::move(options), std::move(inheritance));
    server_->admit();
    thread_ = std::thread([this] { end_ = server_->run(); });
  }
  ~Running() { stop(); }
  // From the next request to stop the job on, nothing is answered until the gate opens.
  void hang_at(std::shared_future<void> gate) {
    server_->on_job_stop([gate] { gate.wait(); });
  }
  void end(ServeEnd end) { server_->end(std::move(end)); }
  void stop() {
    if (!thread_.joinable()) return;
    server_->end({ServeEnd::Cause::kStopRequested, 0, "the test is over"});
    join();
  }
  ServeEnd join() {
    thread_.join();
    had_place_ = !server_->gave_up_place();
    server_.reset();
    lock_.reset();
    return end_;
  }
  bool had_place() const { return had_place_; }

 private:
  Fd lock_;
  std::optional<Server> server_;
  std::thread thread_;
  ServeEnd end_;
  bool had_place_ = false;
};

class HandoverTest : public testing::Test {
 protected:
  static Residency next_generation(char key) {
    Residency residency = sample_residency();
    residency.generation = 2;
    residency.key = std::string(64, key);
    return residency;
  }
  Fd connect() const { return connect_to(directory_, kPlace.socket_name(), kTimeoutMs); }
  wire::DaemonStatus status() const { return wire::call_status(connect().get(), kTimeoutMs); }
  wire::Attached attach(LeasePipe& pipe) const { return attach(connect(), pipe); }
  static wire::Attached attach(const Fd& socket, LeasePipe& pipe) {
    auto attached = wire::call_attach(socket.get(), attach_request(), pipe.read.get(), kTimeoutMs);
    pipe.read.reset();
    return attached;
  }

  TempDir temp_;
  const SocketDir directory_ = temp_.open();
};

TEST_F(HandoverTest, MovesLockSocketLeasesAndOpenConnections) {
  Running first(directory_, sample_residency());
  LeasePipe early, before, after;
  attach(early);
  const Fd waiting = connect();  // and has said hello to the first
  wire::call_hello(waiting.get(), {{1, "test", "0"}}, kTimeoutMs);

  Predecessor predecessor(directory_, kPlace);
  Package package = predecessor.take_package();
  ASSERT_TRUE(package.lock);
  EXPECT_EQ(package.generations.at(0).generation, 1U);
  EXPECT_EQ(package.leases.size(), 1U);
  attach(before);  // it serves on meanwhile
  Running second(directory_, next_generation('c'), &predecessor, std::move(package.lock));
  EXPECT_EQ(first.join().cause, ServeEnd::Cause::kHandedOver);

  EXPECT_EQ(attach(waiting, after).reply.generation, 2U);
  const wire::DaemonStatus now = status();
  EXPECT_EQ(now.generation, 2U);
  EXPECT_EQ(now.leases.size(), 3U);
  EXPECT_TRUE(lock_is_held(directory_, kPlace.lock_name()));
  early.write.reset();
  EXPECT_TRUE(eventually([&] { return status().leases.size() == 2; }, kSoon));
}

TEST_F(HandoverTest, MovesArtifactsAlsoThoseOfTheLastMoment) {
  Running first(directory_, sample_residency());
  put_artifact(connect().get(), "early", "e", "m");
  put_artifact(connect().get(), "changed", "old");
  Predecessor predecessor(directory_, kPlace);
  Package package = predecessor.take_package();
  ASSERT_EQ(package.artifacts.size(), 2U);
  put_artifact(connect().get(), "changed", "new");
  put_artifact(connect().get(), "late", "l");
  Inheritance inheritance;
  inheritance.artifacts = std::move(package.artifacts);
  Running second(directory_, next_generation('c'), &predecessor, std::move(package.lock),
                 std::move(inheritance));
  EXPECT_EQ(first.join().cause, ServeEnd::Cause::kHandedOver);
  EXPECT_EQ(get_artifact(connect().get(), "early"), "e|m");
  EXPECT_EQ(get_artifact(connect().get(), "changed"), "new|");
  EXPECT_EQ(get_artifact(connect().get(), "late"), "l|");
}

TEST_F(HandoverTest, GoesOnWhenTheSuccessorEndsBeforeItServes) {
  Running first(directory_, sample_residency());
  for (const bool committed : {false, true}) {
    for (int round = 0; round < 5; ++round) {
      std::optional<Predecessor> predecessor(std::in_place, directory_, kPlace);
      if (committed) {
        const TakenOver rest = predecessor->take_over();
        EXPECT_TRUE(rest.listener);
      }
      predecessor.reset();
      LeasePipe pipe;
      EXPECT_EQ(attach(pipe).reply.generation, 1U);
    }
  }
}

TEST_F(HandoverTest, ADaemonTooSlowForItsSuccessorEndsAndLeavesThePlaceAlone) {
  Running first(directory_, sample_residency());
  std::promise<void> gate;
  first.hang_at(gate.get_future().share());
  Fd next_lock = take_named_lock(directory_, kPlace.next_lock_name(), "a successor");
  Predecessor predecessor(directory_, kPlace, 300);
  Package package = predecessor.take_package();
  const Fd before = connect();
  EXPECT_THROW(wire::call_stop(before.get(), {.job = true}, 100), Error) << "it hangs";
  Running second(directory_, next_generation('c'), &predecessor, std::move(package.lock));
  const auto is_second = [&] {
    try {
      return wire::call_status(connect().get(), 100).generation == 2;
    } catch (const Error&) {
      return false;  // the first, which hangs
    }
  };
  EXPECT_TRUE(eventually(is_second, kSoon));
  next_lock.reset();
  gate.set_value();
  const auto end = first.join();
  EXPECT_EQ(end.cause, ServeEnd::Cause::kHandedOver);
  EXPECT_FALSE(first.had_place());
  EXPECT_TRUE(is_second()) << "its socket was removed by the first";
}

TEST_F(HandoverTest, WaitsWithThePlaceUntilALostSuccessorHasEnded) {
  Running first(directory_, sample_residency());
  Fd next_lock = take_named_lock(directory_, kPlace.next_lock_name(), "a successor");
  std::optional<Predecessor> predecessor(std::in_place, directory_, kPlace);
  EXPECT_TRUE(predecessor->take_over().listener);
  predecessor.reset();  // the connection alone: it may be about to bind
  const Fd waiting = connect();
  EXPECT_THROW(wire::call_status(waiting.get(), 300), Error);
  next_lock.reset();
  EXPECT_EQ(status().generation, 1U);
}

TEST_F(HandoverTest, ASignalInTheMidstOfItLeavesTheSuccessorItsSocket) {
  Running first(directory_, sample_residency());
  Predecessor predecessor(directory_, kPlace);
  const TakenOver rest = predecessor.take_over();
  ASSERT_TRUE(rest.listener);
  first.end({ServeEnd::Cause::kSignal, 143, "SIGTERM"});
  EXPECT_EQ(first.join().cause, ServeEnd::Cause::kSignal);
  EXPECT_FALSE(first.had_place());
  EXPECT_NO_THROW(connect()) << "the successor listens there";
}

TEST_F(HandoverTest, OutOfDescriptorsServesOn) {
  Running first(directory_, sample_residency());
  LeasePipe held;
  const Fd socket = connect();  // stays: the end of a session would give descriptors back
  attach(socket, held);
  std::optional<Predecessor> predecessor(std::in_place, directory_, kPlace);
  wire::call_status(socket.get(), kTimeoutMs);  // and the package's copies are closed by then
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(duplicate(held.write.get()).get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  EXPECT_FALSE(predecessor->take_over().listener);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  predecessor.reset();
  EXPECT_EQ(status().generation, 1U);
  EXPECT_EQ(status().leases.size(), 1U);
}

TEST_F(HandoverTest, AdmitsAgainAfterADrainThatWasGivenUp) {
  Running first(directory_, sample_residency());
  LeasePipe held;
  attach(held);
  {
    Predecessor predecessor(directory_, kPlace);
    EXPECT_EQ(predecessor.drain(), 1U);
    LeasePipe pipe;
    EXPECT_EQ(refusal([&] { attach(pipe); }).code, Errc::kReleased);
  }
  LeasePipe pipe;
  EXPECT_TRUE(eventually([&] { return status().state == wire::DaemonState::kReady; }, kSoon));
  attach(pipe);
}

TEST_F(HandoverTest, WhatIsDrainedIsFreedWhenTheSuccessorSaysSoAndNotBefore) {
  Running first(directory_, sample_residency());
  LeasePipe held;
  attach(held);
  {
    Predecessor predecessor(directory_, kPlace);
    EXPECT_EQ(predecessor.drain(), 1U);
    EXPECT_EQ(refusal([&] { predecessor.free(); }).code, Errc::kBusy);
    held.write.reset();
    EXPECT_TRUE(eventually([&] { return predecessor.drain() == 0; }, kSoon));
    EXPECT_EQ(status().state, wire::DaemonState::kDraining);
  }
  LeasePipe pipe;
  EXPECT_TRUE(eventually([&] { return status().state == wire::DaemonState::kReady; }, kSoon));
  attach(pipe);
}

TEST_F(HandoverTest, AReleaseOutlivesTheSuccessorThatDrained) {
  for (const bool asked_before : {true, false}) {
    const TempDir temp;
    const SocketDir directory = temp.open();
    Running first(directory, sample_residency());
    const auto connection = [&] { return connect_to(directory, kPlace.socket_name(), kTimeoutMs); };
    const auto release = [&] {
      wire::call_release(connection().get(), {.after_leases = true}, kTimeoutMs);
    };
    LeasePipe held;
    attach(connection(), held);
    if (asked_before) release();
    {
      Predecessor predecessor(directory, kPlace);
      EXPECT_EQ(predecessor.drain(), 1U);
      if (!asked_before) release();
    }
    // The daemon has seen the successor go when another one may come.
    EXPECT_TRUE(eventually(
        [&] {
          try {
            Predecessor another(directory, kPlace);
            return true;
          } catch (const Error&) {
            return false;
          }
        },
        kSoon));
    LeasePipe pipe;
    EXPECT_EQ(refusal([&] { attach(connection(), pipe); }).code, Errc::kReleased);
    held.write.reset();
    EXPECT_TRUE(eventually(
        [&] {
          return wire::call_status(connection().get(), kTimeoutMs).state ==
                 wire::DaemonState::kReleased;
        },
        kSoon));
  }
}

TEST_F(HandoverTest, DrainsToNothingAndIsSucceededStill) {
  Running first(directory_, sample_residency());
  Predecessor predecessor(directory_, kPlace);
  Package package = predecessor.take_package();
  package.generations.clear();
  EXPECT_EQ(predecessor.drain(), 0U);
  EXPECT_EQ(status().state, wire::DaemonState::kDraining);
  predecessor.free();
  EXPECT_EQ(status().state, wire::DaemonState::kReleased);
  Running second(directory_, next_generation('c'), &predecessor, std::move(package.lock));
  EXPECT_EQ(first.join().cause, ServeEnd::Cause::kHandedOver);
  EXPECT_EQ(status().generation, 2U);
}

TEST_F(HandoverTest, IsForOneSuccessorAtATimeAndInOrder) {
  Running first(directory_, sample_residency());
  Predecessor predecessor(directory_, kPlace);
  EXPECT_EQ(refusal([&] { Predecessor(directory_, kPlace); }).code, Errc::kBusy);
  for (const Step step : {Step::kCommit, Step::kDrain, Step::kDone}) {
    const Fd socket = connect();
    EXPECT_THAT(refusal([&] { wire::call_handover(socket.get(), {step}, kTimeoutMs); }).message,
                HasSubstr("prepare comes first"));
  }
  LeasePipe pipe;
  attach(pipe);
}

TEST_F(HandoverTest, DoesNotHaveMemoryThatEndsWithItsProcess) {
  Residency residency = sample_residency();
  for (SlabHandle& slab : residency.slabs) {
    slab.kind = HandleKind::kCudaIpc;
    slab.ipc_bytes = std::string(64, 'i');
  }
  Running first(directory_, std::move(residency));
  const auto reply = refusal([&] { Predecessor(directory_, kPlace); });
  EXPECT_EQ(reply.code, Errc::kUsage);
  EXPECT_THAT(reply.message, HasSubstr("cuda-ipc"));
}

TEST_F(HandoverTest, OfADaemonThatDiedMeanwhileBindsAnew) {
  std::optional<Running> first(std::in_place, directory_, sample_residency());
  Predecessor predecessor(directory_, kPlace);
  Package package = predecessor.take_package();
  first.reset();
  Running second(directory_, next_generation('c'), &predecessor, std::move(package.lock));
  EXPECT_TRUE(eventually(
      [&] {
        try {
          return status().generation == 2;
        } catch (const Error&) {
          return false;
        }
      },
      kSoon));
}

TEST_F(HandoverTest, LeaksNothingOverAThousandSuccessorsThatGiveUp) {
  Running first(directory_, sample_residency());
  { Predecessor warm(directory_, kPlace); }
  status();
  const std::size_t before = wire::open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    std::optional<Predecessor> predecessor;
    ASSERT_TRUE(eventually(
        [&] {
          try {
            predecessor.emplace(directory_, kPlace);
            return true;
          } catch (const Error&) {
            return false;  // the daemon has not seen the last one go yet
          }
        },
        kSoon));
    if (i % 2 == 0) predecessor->take_over();
  }
  EXPECT_TRUE(eventually([&] { return wire::open_descriptors() <= before; }, kSoon));
  LeasePipe pipe;
  attach(pipe);
}

}  // namespace
}  // namespace preload
