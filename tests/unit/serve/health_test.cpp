// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "serve/health_endpoint.hpp"
#include "serve/metrics.hpp"
#include "unit/serve/live_server.hpp"

namespace preload {
namespace {

using testing::HasSubstr;
using wire::DaemonState;

DaemonPulse pulse(int rank, const char* state, std::optional<DaemonState> answer) {
  DaemonPulse pulse;
  pulse.file.state = state;
  pulse.file.global_rank = rank;
  pulse.file.device = "host:" + std::to_string(rank);
  pulse.file.role = "target";
  pulse.answer = answer;
  return pulse;
}

TEST(Health, IsGoodWhenEveryDaemonServes) {
  const Health health =
      judge({pulse(0, "READY", DaemonState::kReady), pulse(1, "READY", DaemonState::kReady)}, 2);
  EXPECT_TRUE(health.healthy);
  EXPECT_EQ(health.state, "READY");
  EXPECT_EQ(health.ready, 2);
}

TEST(Health, NamesTheRankThatDoesNotAnswer) {
  const Health health =
      judge({pulse(0, "READY", DaemonState::kReady), pulse(1, "READY", std::nullopt)}, 2);
  EXPECT_FALSE(health.healthy);
  EXPECT_EQ(health.state, "FAILED");
  EXPECT_THAT(health.reason, HasSubstr("rank 1 (host:1)"));
}

TEST(Health, GivesTheWordsOfAFailureBeforeAnythingElse) {
  DaemonPulse failed = pulse(2, "FAILED", std::nullopt);
  failed.file.text = "the disk is gone";
  const Health health = judge({pulse(0, "READY", std::nullopt), failed}, 2);
  EXPECT_THAT(health.reason, HasSubstr("rank 2"));
  EXPECT_THAT(health.reason, HasSubstr("the disk is gone"));
}

TEST(Health, SaysHowFarALoadIs) {
  DaemonPulse loading = pulse(0, "LOADING", std::nullopt);
  loading.file.progress.bytes = 1ULL << 30;
  loading.file.progress.total_bytes = 4ULL << 30;
  const Health health = judge({loading}, 1);
  EXPECT_FALSE(health.healthy);
  EXPECT_EQ(health.state, "LOADING");
  EXPECT_THAT(health.reason, HasSubstr("1.00 GiB of 4.00 GiB"));
  EXPECT_EQ(judge({pulse(0, "READY", DaemonState::kLoading)}, 1).state, "LOADING");
  EXPECT_EQ(judge({}, 1).state, "LOADING");
}

TEST(Health, IsNotGoodWithoutADaemonThatWasStoppedOrReleased) {
  const Health fewer = judge({pulse(0, "READY", DaemonState::kReady)}, 2);
  EXPECT_FALSE(fewer.healthy);
  EXPECT_THAT(fewer.reason, HasSubstr("1 of the node's 2"));
  const Health released = judge({pulse(0, "READY", DaemonState::kReleased)}, 1);
  EXPECT_FALSE(released.healthy);
  EXPECT_EQ(released.state, "RELEASED");
}

TEST(Health, IsAnsweredAsTextOrAsJson) {
  const Health sick{false, "FAILED", "rank 1 is \"gone\"", 1, 2};
  const HttpReply text = health_reply(sick, "j", {"/health", "", "*/*"});
  EXPECT_EQ(text.status, 503);
  EXPECT_EQ(text.body, "FAILED: rank 1 is \"gone\"\n");
  for (const HttpRequest& request : {HttpRequest{"/health", "", "application/json"},
                                     HttpRequest{"/health", "format=json", ""}}) {
    const auto value = nlohmann::json::parse(health_reply(sick, "j", request).body);
    EXPECT_EQ(value["healthy"], false);
    EXPECT_EQ(value["reason"], "rank 1 is \"gone\"");
    EXPECT_EQ(value["expected"], 2);
  }
  EXPECT_EQ(health_reply({true, "READY", "", 1, 1}, "j", {}).status, 200);
}

// A node of one daemon of job-1, and its endpoint.
class HealthEndpointTest : public testing::Test {
 protected:
  HealthEndpointTest() {
    live_.start();
    StateFile file;
    file.state = "READY";
    file.job = "job-1";
    write_state(live_.directory(), {"host:0", "", Role::kTarget}, file);
    file.job = "another";
    write_state(live_.directory(), {"host:7", "", Role::kTarget}, file);
    HealthEndpoint::Options options;
    options.job = "job-1";
    options.ending = [this] {
      const std::lock_guard lock(mutex_);
      return ending_;
    };
    endpoint_.emplace(live_.directory(), std::move(options));
  }
  bool becomes(bool healthy) {
    return eventually([&] { return endpoint_->health().healthy == healthy; },
                      std::chrono::seconds(20));
  }

  LiveServer live_;
  std::mutex mutex_;
  std::optional<std::string> ending_;
  std::optional<HealthEndpoint> endpoint_;
};

TEST_F(HealthEndpointTest, FollowsTheDaemonsOfItsJob) {
  EXPECT_TRUE(becomes(true));
  live_.end();
  EXPECT_TRUE(becomes(false));
  EXPECT_THAT(endpoint_->health().reason, HasSubstr("rank 0 (host:0) does not answer"));
}

// Its last word, when there was no room for another on the disk.
TEST_F(HealthEndpointTest, BelievesADaemonThatServesMoreThanItsFile) {
  StateFile file;
  file.state = "LOADING";
  file.job = "job-1";
  write_state(live_.directory(), {"host:0", "", Role::kTarget}, file);
  std::this_thread::sleep_for(4 * NodeWatch::kPeriod);
  EXPECT_TRUE(becomes(true));
  file.pid = ::getpid() + 1;  // not that daemon's file: it loads, beside one that it replaces
  write_state(live_.directory(), {"host:0", "", Role::kTarget}, file);
  EXPECT_TRUE(becomes(false));
  EXPECT_EQ(endpoint_->health().state, "LOADING");
}

TEST_F(HealthEndpointTest, SaysAtOnceWhyTheJobEnds) {
  ASSERT_TRUE(becomes(true));
  {
    const std::lock_guard lock(mutex_);
    ending_ = "rank 3 was lost";
  }
  EXPECT_FALSE(endpoint_->health().healthy);
  EXPECT_EQ(endpoint_->health().reason, "rank 3 was lost");
}

TEST_F(HealthEndpointTest, WantsAsManyDaemonsAsItIsTold) {
  ASSERT_TRUE(becomes(true));
  endpoint_->expect(2);
  EXPECT_TRUE(becomes(false));
}

TEST(Metrics, NameEveryDaemonAndEscapeWhatTheyAreCalled) {
  if (!built_with_metrics()) GTEST_SKIP() << "this build has no prometheus-cpp";
  NodeReport report;
  wire::DaemonStatus daemon;
  daemon.gpu_uuid = "gpu-1";
  daemon.role = "target";
  daemon.slot = "b";
  daemon.global_rank = 5;
  daemon.model = "/m/\"a\"\\b\n";
  daemon.state = DaemonState::kReady;
  daemon.bytes = 1ULL << 40;
  daemon.leases.resize(3);
  daemon.counters.attaches.add(0.002);
  daemon.counters.attaches.add(100);
  daemon.counters.refused("mismatch");
  daemon.counters.loads = {{"direct", 3000, 1.5}};
  wire::DaemonStatus gone;  // as its state file has it
  gone.gpu_uuid = "gpu-2";
  gone.role = "target";
  gone.state = DaemonState::kFailed;
  gone.bytes = 1 << 20;
  report.daemons = {daemon, gone};
  report.devices = {{"gpu-1", 10, 20}};
  const std::string text = metrics_text({true, "READY", "", 1, 1}, "job-1", report);
  const std::string labels =
      R"({gpu_uuid="gpu-1",slot="b",role="target",rank="5",model="/m/\"a\"\\b\n")";
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << "\nis not in\n" << text;
  };
  has("# TYPE preload_attach_duration_seconds histogram");
  has("preload_attach_duration_seconds_bucket" + labels + R"(,le="0.001"} 0)");
  has("preload_attach_duration_seconds_bucket" + labels + R"(,le="0.0025"} 1)");
  has("preload_attach_duration_seconds_bucket" + labels + R"(,le="+Inf"} 2)");
  has("preload_attach_duration_seconds_count" + labels + "} 2");
  has("preload_refusals_total" + labels + R"(,cause="mismatch"} 1)");
  has("preload_daemon_state" + labels + R"(,state="READY"} 1)");
  has("preload_daemon_state" + labels + R"(,state="FAILED"} 0)");
  has("preload_leases" + labels + "} 3");
  has("preload_load_bytes_per_second" + labels + R"(,path="direct"} 2000)");
  has(R"(preload_device_memory_free_bytes{gpu_uuid="gpu-1"} 10)");
  has(R"(preload_healthy{job="job-1"} 1)");
  has(R"(preload_resident_bytes{gpu_uuid="gpu-2",slot="",role="target",rank="0",model=""} 0)");
  const std::size_t resident = text.find("preload_resident_bytes" + labels + "} ");
  ASSERT_NE(resident, std::string::npos);
  EXPECT_EQ(std::stod(text.substr(text.find("} ", resident) + 2)), 1099511627776.0);
}

}  // namespace
}  // namespace preload
