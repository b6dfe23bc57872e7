// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

const Endpoint kEndpoint{"host:0", "", Role::kTarget};

StateFile loading() {
  StateFile state;
  state.state = "LOADING";
  state.model = "some-model";
  state.progress.bytes = 1ULL << 30;
  state.progress.total_bytes = 4ULL << 30;
  return state;
}

StateFile tombstone() {
  StateFile state;
  state.state = "FAILED";
  state.code = "checkpoint";
  state.text = "model-00002-of-00002.safetensors is 4 KiB short";
  return state;
}

class FindDaemon : public ClientTest {
 protected:
  SocketDir made() { return SocketDir::open(socket_dir_, true); }
  preload_attach_options host0(int wait_ms) const {
    preload_attach_options o = options();
    o.device = "host:0";
    o.wait_timeout_ms = wait_ms;
    return o;
  }
};

TEST_F(FindDaemon, ListsDirectoryAndNamesWhenThereIsNone) {
  const SocketDir directory = made();
  EXPECT_EQ(refusal(host0(0)), PRELOAD_E_UNAVAILABLE);
  EXPECT_THAT(preload_last_error(),
              AllOf(HasSubstr(directory.path()), HasSubstr(kEndpoint.socket_name()),
                    HasSubstr(kEndpoint.lock_name()), HasSubstr("host:0")));
}

TEST_F(FindDaemon, SaysThatTheDirectoryIsNotThere) {
  EXPECT_EQ(refusal(options()), PRELOAD_E_UNAVAILABLE);
  EXPECT_THAT(preload_last_error(), HasSubstr(socket_dir_));
}

TEST_F(FindDaemon, TakesTheOnlyOneWithoutBeingTold) {
  serve();
  EXPECT_NE(attach(), nullptr);
}

TEST_F(FindDaemon, ListsTheDaemonsWhenThereAreSeveral) {
  serve();
  const LiveServer second(socket_dir_, one_of_everything(), {"host:1", "", Role::kTarget});
  EXPECT_EQ(refusal(options()), PRELOAD_E_USAGE);
  EXPECT_THAT(preload_last_error(), AllOf(HasSubstr("host:0"), HasSubstr("host:1")));
  preload_attach_options named = options();
  named.device = "HOST:1";
  EXPECT_NE(attach(named), nullptr);
}

TEST_F(FindDaemon, ReachesEachSlotAndRole) {
  FixtureShard draft;
  draft.add("only.in.draft", DType::kF32, {}, bytes_of<float>({1}));
  FixtureShard slotted;
  slotted.add("only.in.slot", DType::kF32, {}, bytes_of<float>({2}));
  const LiveServer one(socket_dir_, draft, {"host:0", "", Role::kDraft});
  const LiveServer two(socket_dir_, slotted, {"host:0", "b", Role::kTarget});
  preload_attach_options o = options();
  EXPECT_EQ(refusal(o), PRELOAD_E_UNAVAILABLE);
  EXPECT_THAT(preload_last_error(), AllOf(HasSubstr("slot b"), HasSubstr("role draft")));
  o.role = "draft";
  EXPECT_STREQ(tensor(attach(o), "only.in.draft").dtype, "F32");
  o.role = nullptr;
  o.slot = "b";
  EXPECT_STREQ(tensor(attach(o), "only.in.slot").dtype, "F32");
}

TEST_F(FindDaemon, RefusesWhatNamesNoDevice) {
  serve();
  for (const char* device : {"host:", "host:x", "gpu-1234", "-1", "first", ""}) {
    preload_attach_options o = options();
    o.device = device;
    EXPECT_EQ(refusal(o), PRELOAD_E_USAGE) << device;
    EXPECT_THAT(preload_last_error(), HasSubstr("names no device"));
  }
  preload_attach_options o = options();
  o.role = "teacher";
  EXPECT_EQ(refusal(o), PRELOAD_E_USAGE);
}

TEST_F(FindDaemon, TellsALoadingDaemonsProgressWithoutWaiting) {
  const SocketDir directory = made();
  const Fd lock = take_lock(directory, kEndpoint);
  write_state(directory, kEndpoint, loading());
  EXPECT_EQ(refusal(host0(0)), PRELOAD_E_UNAVAILABLE);
  EXPECT_THAT(preload_last_error(), AllOf(HasSubstr("loading"), HasSubstr("some-model"),
                                          HasSubstr("1.00 GiB of 4.00 GiB")));
}

TEST_F(FindDaemon, WaitsForALoadingDaemonUntilTheDeadline) {
  const SocketDir directory = made();
  const Fd lock = take_lock(directory, kEndpoint);
  write_state(directory, kEndpoint, loading());
  const auto start = Clock::now();
  EXPECT_EQ(refusal(host0(300)), PRELOAD_E_TIMEOUT);
  EXPECT_GE(Clock::now() - start, 300ms);
  EXPECT_THAT(preload_last_error(), AllOf(HasSubstr("waited 0.3 s"), HasSubstr("some-model")));
}

TEST_F(FindDaemon, AttachesOnceTheLoadingDaemonServes) {
  {
    const SocketDir directory = made();
    write_state(directory, kEndpoint, loading());
  }
  std::thread daemon([this] {
    std::this_thread::sleep_for(200ms);
    serve();
  });
  const auto start = Clock::now();
  EXPECT_NE(attach(host0(30000)), nullptr);
  EXPECT_GE(Clock::now() - start, 200ms);
  daemon.join();
}

TEST_F(FindDaemon, GivesATombstonesTextAtOnceWithoutWaiting) {
  write_state(made(), kEndpoint, tombstone());
  EXPECT_EQ(refusal(host0(0)), PRELOAD_E_FAILED);
  EXPECT_THAT(preload_last_error(), AllOf(HasSubstr("checkpoint"), HasSubstr("4 KiB short")));
}

TEST_F(FindDaemon, WaitsThreeSecondsForATombstonesSuccessor) {
  write_state(made(), kEndpoint, tombstone());
  const auto start = Clock::now();
  EXPECT_EQ(refusal(host0(60000)), PRELOAD_E_FAILED);
  EXPECT_GE(Clock::now() - start, 3s);
  EXPECT_LT(Clock::now() - start, 20s);
}

TEST_F(FindDaemon, ForgetsATombstoneWhoseSuccessorServes) {
  write_state(made(), kEndpoint, tombstone());
  std::thread daemon([this] {
    std::this_thread::sleep_for(500ms);
    serve();
  });
  EXPECT_NE(attach(host0(30000)), nullptr);
  daemon.join();
}

TEST_F(FindDaemon, SaysThatADaemonDied) {
  StateFile state = loading();
  state.state = "READY";
  state.pid = 4242;
  write_state(made(), kEndpoint, state);
  EXPECT_EQ(refusal(host0(0)), PRELOAD_E_UNAVAILABLE);
  EXPECT_THAT(preload_last_error(), AllOf(HasSubstr("4242"), HasSubstr("is gone")));
}

}  // namespace
}  // namespace preload::test
