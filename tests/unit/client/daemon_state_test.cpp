// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>

#include "preload/client.hpp"
#include "serve/connect.hpp"
#include "serve/keeper.hpp"
#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const Endpoint kEndpoint{"host:0", "", Role::kTarget};

class DaemonState : public ClientTest {
 protected:
  SocketDir made() { return SocketDir::open(socket_dir_, true); }
  std::string socket_path() const { return socket_dir_ + "/" + kEndpoint.socket_name(); }
  AttachOptions wanted() const {
    AttachOptions options;
    options.socket_dir = socket_dir_;
    options.device = "host:0";
    return options;
  }
  static StateFile state(const std::string& name) {
    StateFile file;
    file.state = name;
    file.model = "some-model";
    file.job = "job-7";
    file.progress.bytes = 1 << 30;
    file.progress.total_bytes = std::uint64_t{4} << 30;
    return file;
  }
  // Attaching by `options` is refused with this status.
  static preload_status refused(const AttachOptions& options) {
    try {
      const preload::Attachment attachment(options);
      return PRELOAD_OK;
    } catch (const ClientError& error) {
      return error.status();
    }
  }
};

TEST_F(DaemonState, OfAReadyOneIsToldWithoutALease) {
  serve();
  const Daemon daemon = find_daemon(wanted());
  EXPECT_EQ(daemon.state, PRELOAD_DAEMON_READY);
  EXPECT_EQ(daemon.memory, PRELOAD_MEMORY_HOST);
  EXPECT_EQ(daemon.cuda_device, std::nullopt);
  EXPECT_EQ(daemon.bytes, 4U << 20);
  EXPECT_EQ(daemon.device, "host:0");
  EXPECT_EQ(daemon.role, "target");
  EXPECT_EQ(daemon.key, std::string(64, 'a'));
  EXPECT_EQ(server_->leases(), 0U);
}

TEST_F(DaemonState, OfAnAbsentOneIsNoError) {
  const Daemon nowhere = find_daemon(wanted());
  EXPECT_EQ(nowhere.state, PRELOAD_DAEMON_ABSENT);
  EXPECT_THAT(nowhere.text, HasSubstr(socket_dir_));
  const SocketDir directory = made();
  EXPECT_EQ(find_daemon(wanted()).state, PRELOAD_DAEMON_ABSENT);
}

TEST_F(DaemonState, OfALoadingOneSaysHowFarItIs) {
  const SocketDir directory = made();
  const Fd lock = take_lock(directory, kEndpoint);
  EXPECT_EQ(find_daemon(wanted()).state, PRELOAD_DAEMON_LOADING);
  write_state(directory, kEndpoint, state("LOADING"));
  const Daemon daemon = find_daemon(wanted());
  EXPECT_EQ(daemon.state, PRELOAD_DAEMON_LOADING);
  EXPECT_EQ(daemon.model, "some-model");
  EXPECT_EQ(daemon.job, "job-7");
  EXPECT_EQ(daemon.bytes, std::uint64_t{4} << 30);
  EXPECT_THAT(daemon.text, HasSubstr("1.00 GiB of 4.00 GiB"));
}

TEST_F(DaemonState, OfAFailedOneSaysWhy) {
  StateFile failed = state("FAILED");
  failed.code = "memory";
  failed.text = "the plan needs 4 GiB more";
  write_state(made(), kEndpoint, failed);
  const Daemon daemon = find_daemon(wanted());
  EXPECT_EQ(daemon.state, PRELOAD_DAEMON_FAILED);
  EXPECT_THAT(daemon.text, AllOf(HasSubstr("memory"), HasSubstr("4 GiB more")));
}

TEST_F(DaemonState, OfAReleasedOneIsSaid) {
  serve();
  server_->release();
  EXPECT_EQ(find_daemon(wanted()).state, PRELOAD_DAEMON_RELEASED);
}

TEST_F(DaemonState, IsToldOfTheSocketThatIsNamed) {
  serve();
  const LiveServer second(socket_dir_, one_of_everything(), {"host:1", "b", Role::kTarget});
  AttachOptions options;
  options.socket_path = socket_path();
  EXPECT_EQ(find_daemon(options).device, "host:0");
  EXPECT_EQ(preload::Attachment(options).device(), "host:0");
}

TEST_F(DaemonState, RefusesANamedSocketOfAnotherDevice) {
  serve();
  AttachOptions options;
  options.socket_path = socket_path();
  options.device = "host:1";
  EXPECT_EQ(refused(options), PRELOAD_E_MISMATCH);
  EXPECT_THAT(preload_last_error(), AllOf(HasSubstr("\"host:0\", not \"host:1\"")));
  options.device = "host:0";
  options.slot = "b";
  EXPECT_EQ(refused(options), PRELOAD_E_MISMATCH);
  options.slot.clear();
  options.role = "draft";
  EXPECT_EQ(refused(options), PRELOAD_E_MISMATCH);
  options.role = "target";
  EXPECT_EQ(refused(options), PRELOAD_OK);
}

TEST_F(DaemonState, RefusesAPathThatIsNoSockets) {
  AttachOptions options;
  options.socket_path = "relative.sock";
  EXPECT_EQ(refused(options), PRELOAD_E_USAGE);
  options.socket_path = socket_dir_ + "/x.lock";
  EXPECT_EQ(refused(options), PRELOAD_E_USAGE);
  options.socket_path = socket_path();
  options.socket_dir = socket_dir_;
  EXPECT_EQ(refused(options), PRELOAD_E_USAGE);
}

TEST_F(DaemonState, SaysThatNobodyIsBehindANamedSocket) {
  const SocketDir directory = made();
  AttachOptions options;
  options.socket_path = socket_path();
  EXPECT_EQ(refused(options), PRELOAD_E_UNAVAILABLE);
  EXPECT_THAT(preload_last_error(), HasSubstr(kEndpoint.socket_name()));
}

TEST_F(DaemonState, OneThatIsAbsentIsNotWaitedForWhereThatWasAsked) {
  const SocketDir directory = made();
  AttachOptions options = wanted();
  options.wait = 600s;
  options.absent_wait = 0s;
  EXPECT_EQ(refused(options), PRELOAD_E_UNAVAILABLE);
  options.absent_wait = 200ms;
  const auto start = Clock::now();
  EXPECT_EQ(refused(options), PRELOAD_E_TIMEOUT);
  EXPECT_GE(Clock::now() - start, 200ms);
}

TEST_F(DaemonState, OneThatLoadsIsWaitedForFromItsFirstSign) {
  const SocketDir directory = made();
  const Fd lock = take_lock(directory, kEndpoint);
  write_state(directory, kEndpoint, state("LOADING"));
  AttachOptions options = wanted();
  options.absent_wait = 0s;
  options.wait = 300ms;
  const auto start = Clock::now();
  EXPECT_EQ(refused(options), PRELOAD_E_TIMEOUT);
  EXPECT_GE(Clock::now() - start, 300ms);
  EXPECT_THAT(preload_last_error(), HasSubstr("is still loading"));
}

// As one that was stopped: connections reach its backlog, and nobody answers.
TEST_F(DaemonState, OneThatHoldsItsLockAndDoesNotAnswerIsNeverAbsent) {
  const SocketDir directory = made();
  const Fd lock = take_lock(directory, kEndpoint);
  const Fd listener = listen_at(directory, kEndpoint.socket_name());
  StateFile ready = state("READY");
  ready.pid = 4242;
  write_state(directory, kEndpoint, ready);
  AttachOptions options = wanted();
  options.connect_timeout = 50ms;
  const Daemon daemon = find_daemon(options);
  EXPECT_EQ(daemon.state, PRELOAD_DAEMON_LOADING);
  EXPECT_THAT(daemon.text, AllOf(HasSubstr("does not answer"), HasSubstr("kill -CONT 4242")));
  options.absent_wait = 0s;
  options.wait = 200ms;
  EXPECT_EQ(refused(options), PRELOAD_E_TIMEOUT);
  EXPECT_THAT(preload_last_error(), HasSubstr("does not answer"));
}

TEST_F(DaemonState, OneThatLeftItsSocketAndFreedItsLockIsAbsent) {
  const SocketDir directory = made();
  const Fd listener = listen_at(directory, kEndpoint.socket_name());
  write_state(directory, kEndpoint, state("READY"));
  AttachOptions options = wanted();
  options.connect_timeout = 50ms;
  EXPECT_EQ(find_daemon(options).state, PRELOAD_DAEMON_ABSENT);
}

TEST_F(DaemonState, OneWhoseKeeperDoesNotAnswerIsNotAbsentEither) {
  const SocketDir directory = made();
  const Fd lock = take_named_lock(directory, std::string(kKeeperLock), "a keeper");
  const Fd listener = listen_at(directory, std::string(kKeeperSocket));
  AttachOptions options = wanted();
  options.connect_timeout = 50ms;
  EXPECT_EQ(find_daemon(options).state, PRELOAD_DAEMON_ABSENT);  // none ever served
  write_state(directory, kEndpoint, state("READY"));
  const Daemon daemon = find_daemon(options);
  EXPECT_EQ(daemon.state, PRELOAD_DAEMON_LOADING);
  EXPECT_THAT(daemon.text, HasSubstr("keeper"));
}

TEST_F(DaemonState, AFailureOfTheOneThatWasSeenLoadingIsToldAtOnce) {
  const SocketDir directory = made();
  Fd lock = take_lock(directory, kEndpoint);
  write_state(directory, kEndpoint, state("LOADING"));
  std::thread daemon([&] {
    std::this_thread::sleep_for(200ms);
    StateFile failed = state("FAILED");
    failed.code = "checkpoint";
    failed.text = "a shard is short";
    write_state(directory, kEndpoint, failed);
    lock.reset();
  });
  AttachOptions options = wanted();
  options.wait = 600s;
  const auto start = Clock::now();
  EXPECT_EQ(refused(options), PRELOAD_E_FAILED);
  EXPECT_LT(Clock::now() - start, 3s);  // the grace that a failure of before is given
  EXPECT_THAT(preload_last_error(), HasSubstr("a shard is short"));
  daemon.join();
}

}  // namespace
}  // namespace preload::test
