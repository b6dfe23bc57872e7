// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "cli/command.hpp"
#include "serve/keeper.hpp"
#include "unit/serve/live_server.hpp"

// status, wait, release and stop as a user calls them, against real sockets and locks.

namespace preload::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const Endpoint kEndpoint{"host:0", "", Role::kTarget};

struct Outcome {
  int status = 0;
  std::string out;
};

Outcome run(int (*command)(const Arguments&), const std::string& directory, Arguments arguments) {
  arguments.insert(arguments.end(), {"--weight-cache-socket-dir", directory});
  testing::internal::CaptureStdout();
  Outcome outcome;
  try {
    outcome.status = command(arguments);
  } catch (const Error& error) {
    outcome.status = exit_status(error.code());
  }
  std::fflush(stdout);
  outcome.out = testing::internal::GetCapturedStdout();
  return outcome;
}

StateFile state_of(const std::string& state) {
  StateFile file;
  file.state = state;
  file.job = "job-1";
  file.progress = {4000, 10000, 100, 60.0, 1, wire::StalledRead{"/m/a.safetensors", 8, 16, 34}, {}};
  return file;
}

// A process that has the lock and loads until it is signalled, or for as long as it likes.
class LoadingDaemon {
 public:
  LoadingDaemon(const SocketDir& directory, bool obeys, bool succeeds = false) {
    std::array<int, 2> ready{};
    check_sys(::pipe(ready.data()), "pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      if (!obeys) ::signal(SIGTERM, SIG_IGN);
      StateFile state = state_of("LOADING");
      if (succeeds) state.job = "job-2";
      const Fd lock = succeeds ? take_named_lock(directory, kEndpoint.next_lock_name(), "another")
                               : take_lock(directory, kEndpoint);
      write_state(directory, kEndpoint,
                  succeeds ? kEndpoint.next_state_name() : kEndpoint.state_name(), state);
      [[maybe_unused]] const ssize_t n = ::write(ready[1], "x", 1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~LoadingDaemon() {
    if (pid_ > 0) end(SIGKILL);
  }
  pid_t pid() const { return pid_; }
  // Returns when it runs no more: until then a signal that ends it would overtake this one.
  void suspend() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  int end(int signal = 0) {
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
};

TEST(StatusCommand, IsAnEmptyListWhereNoDaemonIs) {
  const TempDir temp;
  for (const std::string& path : {temp.path(), temp.file("none")}) {
    const Outcome outcome = run(run_status, path, {"--json"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(json::parse(outcome.out), json({{"daemons", json::array()}}));
  }
}

TEST(StatusCommand, ListsALoadingDaemonWithItsProgress) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  LoadingDaemon daemon(directory, true);
  const json daemons = json::parse(run(run_status, temp.path(), {"--json"}).out)["daemons"];
  ASSERT_EQ(daemons.size(), 1U);
  EXPECT_EQ(daemons[0]["state"], "LOADING");
  EXPECT_EQ(daemons[0]["pid"], daemon.pid());
  EXPECT_EQ(daemons[0]["progress"]["bytes"], 4000);
  EXPECT_EQ(daemons[0]["progress"]["seconds_left"], 60);
  EXPECT_EQ(daemons[0]["progress"]["stalled"]["file"], "/m/a.safetensors");
  EXPECT_EQ(daemons[0]["gpu_uuid"], "host:0");
  EXPECT_THAT(
      run(run_status, temp.path(), {}).out,
      testing::AllOf(HasSubstr("LOADING 40%"), HasSubstr("100 B/s, 60 s left"),
                     HasSubstr("at offset 8 of '/m/a.safetensors' has not ended after 34 s"),
                     Not(HasSubstr("on this node"))));
}

TEST(StatusCommand, ListsADaemonAndItsSuccessorThatLoads) {
  LiveServer live;
  live.start();
  LoadingDaemon successor(live.directory(), true, true);
  const json daemons = json::parse(run(run_status, live.temp().path(), {"--json"}).out)["daemons"];
  ASSERT_EQ(daemons.size(), 2U);
  std::set<std::string> states{daemons[0]["state"], daemons[1]["state"]};
  EXPECT_EQ(states, (std::set<std::string>{"LOADING", "READY"}));
}

TEST(WaitCommand, WaitsForASuccessorAndTellsWhenItFails) {
  LiveServer live;
  live.start();
  StateFile old = state_of("READY");
  old.time_ms = 1000;
  write_state(live.directory(), kEndpoint, old);
  std::optional<LoadingDaemon> successor(std::in_place, live.directory(), true, true);
  EXPECT_EQ(run(run_wait, live.temp().path(), {"--timeout", "0.3"}).status, 7);
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    StateFile tombstone = state_of("FAILED");
    tombstone.job = "job-2";
    tombstone.pid = successor->pid();
    tombstone.code = "memory";
    tombstone.exit_status = 4;
    write_state(live.directory(), kEndpoint, kEndpoint.next_state_name(), tombstone);
    successor.reset();
  });
  EXPECT_EQ(run(run_wait, live.temp().path(), {"--timeout", "20"}).status, 4);
  failing.join();
  EXPECT_EQ(run(run_wait, live.temp().path(), {"--timeout", "20"}).status, 0) << "the old serves";
}

TEST(StatusCommand, ADaemonThatServesAndDoesNotAnswerIsNotShownAsLoading) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kEndpoint);
  write_state(directory, kEndpoint, state_of("READY"));
  const json daemons = json::parse(run(run_status, temp.path(), {"--json"}).out)["daemons"];
  ASSERT_EQ(daemons.size(), 1U);
  EXPECT_EQ(daemons[0]["state"], "READY");
  const std::string table = run(run_status, temp.path(), {}).out;
  EXPECT_THAT(table, testing::AllOf(HasSubstr("READY"), HasSubstr("not answering: pid"),
                                    Not(HasSubstr("LOADING"))));
}

TEST(StatusCommand, PrintsNoControlCharacterOfOthers) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kEndpoint);
  StateFile state = state_of("LOADING");
  state.model = "/m/x\npreload: END status=0\x1b[2K";
  write_state(directory, kEndpoint, state);
  const std::string table = run(run_status, temp.path(), {}).out;
  EXPECT_THAT(table, HasSubstr("/m/x\\npreload: END status=0\\x1b[2K"));
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
}

TEST(AttachCommand, ADaemonThatHasNotSaidItsDeviceIsUnavailableNotAWrongOption) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kEndpoint);
  EXPECT_EQ(run(run_attach, temp.path(), {}).status, 7);
}

TEST(AttachCommand, AnotherSlotsModelIsNotTakenForOneThatIsGone) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Endpoint blue{"host:0", "blue", Role::kTarget};
  const Fd lock = take_lock(directory, blue);
  write_state(directory, blue, state_of("LOADING"));
  write_state(directory, kEndpoint, state_of("READY"));  // and its lock is free
  try {
    run_attach({"--weight-cache-socket-dir", temp.path()});
    ADD_FAILURE() << "another model was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("--slot blue"));
  }
}

TEST(StatusCommand, AddsUpWhatTheDaemonsOfAJobHaveLoadedOnThisNode) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  std::vector<Fd> locks;
  for (const char* device : {"host:0", "host:1"}) {
    const Endpoint endpoint{device, "", Role::kTarget};
    locks.push_back(take_lock(directory, endpoint));
    write_state(directory, endpoint, state_of("LOADING"));
  }
  EXPECT_THAT(run(run_status, temp.path(), {}).out,
              HasSubstr("job job-1 on this node: 7.81 KiB of 19.53 KiB (40 %), 200 B/s, slowest is "
                        "rank 1, 60 s left"));
}

TEST(StatusCommand, ListsLeases) {
  LiveServer live;
  live.start();
  const Client client = attach(live);
  const json daemons = json::parse(run(run_status, live.temp().path(), {"--json"}).out)["daemons"];
  ASSERT_EQ(daemons.size(), 1U);
  EXPECT_EQ(daemons[0]["state"], "READY");
  EXPECT_EQ(daemons[0]["leases"][0]["name"], "test client");
  EXPECT_THAT(run(run_status, live.temp().path(), {}).out, HasSubstr("lease: pid"));
  EXPECT_EQ(json::parse(run(run_status, live.temp().path(), {"--json", "--gpu", "host:1"}).out),
            json({{"daemons", json::array()}}));
}

TEST(WaitCommand, EndsWithZeroWhenAllAreReady) {
  LiveServer live(sample_residency(), {}, false);
  live.start();
  std::thread admitter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    live.server().admit();
  });
  const Outcome outcome = run(run_wait, live.temp().path(), {"--timeout", "20", "--json"});
  admitter.join();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(json::parse(outcome.out)["ready"], true);
  EXPECT_EQ(json::parse(outcome.out)["job"], "job-1");
}

TEST(WaitCommand, EndsWithSevenWhenNothingIsThereOrNotReadyInTime) {
  const TempDir temp;
  EXPECT_EQ(run(run_wait, temp.path(), {"--timeout", "0.2"}).status, 7);
  EXPECT_EQ(run(run_wait, temp.file("none"), {"--timeout", "0"}).status, 7);
  LoadingDaemon daemon(temp.open(), true);
  EXPECT_EQ(run(run_wait, temp.path(), {"--timeout", "0.2"}).status, 7);
}

TEST(WaitCommand, EndsWithTheTombstonesStatusAndText) {
  const TempDir temp;
  StateFile tombstone = state_of("FAILED");
  tombstone.code = "checkpoint";
  tombstone.text = "model-00002.safetensors is missing";
  tombstone.exit_status = 3;
  write_state(temp.open(), kEndpoint, tombstone);
  const Outcome outcome = run(run_wait, temp.path(), {"--timeout", "20", "--json"});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(json::parse(outcome.out)["code"], "checkpoint");
  EXPECT_THAT(json::parse(outcome.out)["text"].get<std::string>(),
              HasSubstr("model-00002.safetensors is missing"));
}

TEST(WaitCommand, ATombstoneThatANewDaemonReplacesDoesNotCount) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  StateFile tombstone = state_of("FAILED");
  tombstone.exit_status = 3;
  write_state(directory, kEndpoint, tombstone);
  std::thread successor([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Fd lock = take_lock(directory, kEndpoint);
    write_state(directory, kEndpoint, state_of("LOADING"));
    std::this_thread::sleep_for(std::chrono::seconds(5));
  });
  EXPECT_EQ(run(run_wait, temp.path(), {"--timeout", "4.5"}).status, 7);
  successor.join();
}

TEST(WaitCommand, IsToldAtOnceOfAFailureThatHappensMeanwhile) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  std::chrono::steady_clock::time_point failed;
  std::thread daemon([&] {
    const Fd lock = take_lock(directory, kEndpoint);
    write_state(directory, kEndpoint, state_of("LOADING"));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    StateFile tombstone = state_of("FAILED");
    tombstone.exit_status = 4;
    write_state(directory, kEndpoint, tombstone);
    failed = std::chrono::steady_clock::now();
  });
  const Outcome outcome = run(run_wait, temp.path(), {"--timeout", "60"});
  const auto returned = std::chrono::steady_clock::now();
  daemon.join();
  EXPECT_EQ(outcome.status, 4);
  EXPECT_LT(returned - failed, std::chrono::milliseconds(2900));  // 3 s: of an older failure
}

TEST(WaitCommand, IsToldAtOnceOfADaemonThatIsKilledMeanwhile) {
  const TempDir temp;
  LoadingDaemon daemon(temp.open(), true);
  std::chrono::steady_clock::time_point killed;
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    killed = std::chrono::steady_clock::now();
    daemon.end(SIGKILL);
  });
  const Outcome outcome = run(run_wait, temp.path(), {"--timeout", "60"});
  const auto returned = std::chrono::steady_clock::now();
  killer.join();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_LT(returned - killed, std::chrono::milliseconds(2900));
}

TEST(WaitCommand, EndsWithOneWhenTheDaemonDied) {
  const TempDir temp;
  write_state(temp.open(), kEndpoint, state_of("LOADING"));
  EXPECT_EQ(run(run_wait, temp.path(), {"--timeout", "20"}).status, 1);
}

TEST(ReleaseCommand, LetsGoOfTheWeights) {
  LiveServer live;
  live.start();
  std::optional<Client> client = attach(live);
  const json drained = json::parse(run(run_release, live.temp().path(), {"--json"}).out);
  EXPECT_EQ(drained["daemons"][0]["state"], "DRAINING");
  EXPECT_EQ(drained["daemons"][0]["leases"], 1);
  const Outcome forced = run(run_release, live.temp().path(), {"--force"});
  EXPECT_EQ(forced.status, 0);
  EXPECT_THAT(forced.out, HasSubstr("RELEASED"));
  EXPECT_EQ(run(run_wait, live.temp().path(), {"--timeout", "20"}).status, 7);
}

TEST(ReleaseCommand, EndsWithSevenWhereNobodyServes) {
  const TempDir temp;
  EXPECT_EQ(run(run_release, temp.path(), {}).status, 7);
}

TEST(StopCommand, KillsADaemonThatIsSuspendedAndSaysThatItWasNoCleanEnd) {
  const TempDir temp;
  LoadingDaemon daemon(temp.open(), true);
  daemon.suspend();
  testing::internal::CaptureStderr();
  const Outcome outcome = run(run_stop, temp.path(), {"--timeout", "1"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(HasSubstr("was killed"), HasSubstr(std::to_string(daemon.pid()))));
  const int status = daemon.end();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// Stops what runs in the server's directory; the server ends as it is asked to.
Outcome stopped(LiveServer& live) {
  std::thread daemon([&] {
    live.join();
    live.end();
  });
  Outcome outcome = run(run_stop, live.temp().path(), {"--timeout", "20", "--json"});
  daemon.join();
  return outcome;
}

TEST(StopCommand, EndsAServingDaemon) {
  LiveServer live;
  live.start();
  const Outcome outcome = stopped(live);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(json::parse(outcome.out)["daemons"][0]["stopped"], true);
}

TEST(StopCommand, TerminatesALoadingDaemon) {
  const TempDir temp;
  LoadingDaemon daemon(temp.open(), true);
  EXPECT_EQ(run(run_stop, temp.path(), {"--timeout", "20"}).status, 0);
  const int status = daemon.end();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

// Else it would come up when all is thought to be stopped.
TEST(StopCommand, TerminatesASuccessorThatLoadsToo) {
  LiveServer live;
  live.start();
  LoadingDaemon successor(live.directory(), true, true);
  const Outcome outcome = stopped(live);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(json::parse(outcome.out)["daemons"].size(), 2U);
  const int status = successor.end();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

TEST(StopCommand, SaysThatAKeeperThatHangsDidNotEnd) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_named_lock(directory, std::string(kKeeperLock), "a keeper");
  const Fd socket = listen_at(directory, std::string(kKeeperSocket));  // nobody accepts
  EXPECT_EQ(run(run_stop, temp.path(), {"--keeper", "--timeout", "0.3"}).status, 1);
}

TEST(StopCommand, EndsWithOneWhenADaemonDoesNotGo) {
  const TempDir temp;
  LoadingDaemon daemon(temp.open(), false);
  EXPECT_EQ(run(run_stop, temp.path(), {"--timeout", "0.3"}).status, 1);
}

TEST(StopCommand, EndsWithSevenWhereNoDaemonRuns) {
  const TempDir temp;
  EXPECT_EQ(run(run_stop, temp.path(), {}).status, 7);
  write_state(temp.open(), kEndpoint, state_of("LOADING"));  // of a dead one
  EXPECT_EQ(run(run_stop, temp.path(), {}).status, 7);
}

}  // namespace
}  // namespace preload::cli
