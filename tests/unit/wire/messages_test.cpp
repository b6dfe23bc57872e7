// SPDX-License-Identifier: Apache-2.0
#include "wire/messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace preload::wire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kDigest(64, 'a');

template <class Call>
std::string protocol_error(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kProtocol) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

AttachReply sample_reply() {
  AttachReply reply;
  reply.key = kDigest;
  reply.checkpoint = std::string(64, 'b');
  reply.generation = 7;
  reply.gpu_uuid = "gpu-01234567-89ab-cdef-0123-456789abcdef";
  reply.device = "cuda";
  reply.slot = "a";
  reply.role = "target";
  reply.job = "slurm-12.0";
  reply.model = "/models/m";
  reply.global_rank = 3;
  std::string ipc(64, '\0');
  for (std::size_t i = 0; i < 64; ++i) ipc[i] = static_cast<char>(250 + i);
  reply.slabs = {{std::uint64_t{8} << 30, TensorClass::kShared, "vmm", ""},
                 {1 << 21, TensorClass::kPrivate, "vmm", ""},
                 {1 << 21, TensorClass::kShared, "cuda-ipc", ipc}};
  return reply;
}

TEST(Messages, AttachRequestSurvivesTheWire) {
  AttachRequest request;
  request.expect.key = kDigest;
  request.expect.checkpoint = std::string(64, '0');
  request.expect.fields = {{"tp_size", "2"}, {"dtype", "BF16"}};
  request.mode = AttachMode::kCopy;
  request.client = {42, "engine", "0.1.0"};
  EXPECT_EQ(attach_request_from_json(to_json(request)), request);
}

TEST(Messages, AttachRequestMayLeaveOutAllButTheClient) {
  const auto request = attach_request_from_json(R"({"client":{"pid":1,"name":"x"},"new":[1]})");
  EXPECT_TRUE(request.expect.empty());
  EXPECT_EQ(request.mode, AttachMode::kMap);
}

TEST(Messages, ExpectationTakesNumbersAndBooleansAsTheirText) {
  const auto expect =
      expectation_from_json(R"({"fields":{"tp_size":2,"x":true,"d":"BF16"}})", Errc::kUsage);
  EXPECT_EQ(expect.fields,
            (std::map<std::string, std::string>{{"tp_size", "2"}, {"x", "true"}, {"d", "BF16"}}));
}

TEST(Messages, ExpectationThatCannotBeCheckedIsRefused) {
  for (const char* text :
       {R"({"keey":"00"})", R"({"key":"short"})", R"({"key":5})", "[]", "{", R"({"fields":[]})",
        R"({"fields":{"a":{}}})", R"({"fields":{"a":null}})", R"({"checkpoint":"G"})"}) {
    try {
      expectation_from_json(text, Errc::kUsage);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kUsage) << text;
      EXPECT_THAT(error.what(), HasSubstr("expect"));
    }
  }
}

TEST(Messages, AttachReplySurvivesTheWire) {
  EXPECT_EQ(attach_reply_from_json(to_json(sample_reply())), sample_reply());
}

TEST(Messages, AttachReplyCallsForAManifestAndADescriptorPerSlabThatHasOne) {
  EXPECT_EQ(sample_reply().fd_count(), 3U);
  EXPECT_EQ(AttachReply{}.fd_count(), 1U);
}

TEST(Messages, AttachReplyRefusesAHandleOfTheWrongLength) {
  json value = json::parse(to_json(sample_reply()));
  value["slabs"][2]["handle"] = "abcd";
  EXPECT_THAT(protocol_error([&] { attach_reply_from_json(value.dump()); }), HasSubstr("handle"));
  value["slabs"][2]["handle"] = std::string(128, 'x');
  EXPECT_THAT(protocol_error([&] { attach_reply_from_json(value.dump()); }), HasSubstr("handle"));
}

TEST(Messages, StatusSurvivesTheWireAndUsesTheDocumentedNames) {
  DaemonStatus status;
  status.gpu_uuid = "host:1";
  status.role = "draft";
  status.slot = "b";
  status.job = "j";
  status.pid = 77;
  status.global_rank = 1;
  status.state = DaemonState::kDraining;
  status.model = "m";
  status.key = kDigest;
  status.checkpoint = kDigest;
  status.receipt_json = R"([{"name":"a"}])";
  status.bytes = 1ULL << 40;
  status.overhead_bytes = 5;
  status.generation = 2;
  status.progress = {1, 2, 3, 0.5, 4, StalledRead{"/m/a", 5, 6, 7.5}, "warm-up"};
  status.export_kind = "host";
  status.version = "0.1.0";
  status.local_size = 4;
  status.engine_caches = "/c";
  status.code = "memory";
  status.text = "too little";
  status.leases = {{9, "engine", 1.5}};
  status.counters.attaches.add(0.002);
  status.counters.attaches.add(7);
  status.counters.refused("mismatch");
  status.counters.loads = {{"direct", 1ULL << 33, 2.5}, {"peers", 12, 2.5}};
  EXPECT_EQ(daemon_status_from_json(to_json(status)), status);
  const json value = json::parse(to_json(status));
  for (const char* name :
       {"gpu_uuid", "slot", "role", "job", "pid", "global_rank", "state", "model", "key",
        "evidence", "bytes", "overhead_bytes", "generation", "progress", "leases"})
    EXPECT_TRUE(value.contains(name)) << name;
  EXPECT_EQ(value["state"], "DRAINING");
  EXPECT_EQ(value["progress"],
            json({{"phase", "warm-up"},
                  {"bytes", 1},
                  {"total_bytes", 2},
                  {"bytes_per_s", 3},
                  {"seconds_left", 0.5},
                  {"slowest_rank", 4},
                  {"stalled", {{"file", "/m/a"}, {"offset", 5}, {"bytes", 6}, {"seconds", 7.5}}}}));
  EXPECT_EQ(value["leases"][0], json({{"pid", 9}, {"name", "engine"}, {"age_s", 1.5}}));
  EXPECT_EQ(value["evidence"]["receipt"][0]["name"], "a");
  EXPECT_EQ(value["counters"]["refusals"], json({{"mismatch", 1}}));
  EXPECT_EQ(value["counters"]["loads"][0],
            json({{"path", "direct"}, {"bytes", 1ULL << 33}, {"seconds", 2.5}}));
  EXPECT_EQ(value["counters"]["attaches"]["classes"][2], json({{"most_s", 0.0025}, {"count", 1}}));
}

TEST(Messages, StatusOfADaemonThatCountsNothingIsUnderstood) {
  json value = json::parse(to_json(DaemonStatus{}));
  value.erase("counters");
  EXPECT_EQ(daemon_status_from_json(value.dump()), DaemonStatus{});
}

TEST(AttachTimes, FallIntoTheClassWhoseBoundTheyDoNotExceed) {
  AttachTimes times;
  for (const double seconds : {0.0005, 0.00051, 0.5, 0.51}) times.add(seconds);
  EXPECT_EQ(times.counts.front(), 1U);
  EXPECT_EQ(times.counts[1], 1U);
  EXPECT_EQ(times.counts[AttachTimes::kBounds.size() - 1], 1U);
  EXPECT_EQ(times.counts.back(), 1U);
  EXPECT_EQ(times.count(), 4U);
  EXPECT_DOUBLE_EQ(times.sum_s, 1.01101);
}

TEST(Messages, StatusOfALoadingDaemonHasNoKeyYet) {
  const json value = json::parse(to_json(DaemonStatus{}));
  EXPECT_TRUE(value["key"].is_null());
  EXPECT_TRUE(value["evidence"].is_null());
  for (const char* name : {"phase", "bytes_per_s", "seconds_left", "slowest_rank", "stalled"})
    EXPECT_TRUE(value["progress"].at(name).is_null()) << name;
  EXPECT_EQ(daemon_status_from_json(value.dump()), DaemonStatus{});
}

TEST(Messages, AReceiptThatWouldCrowdAFrameOutIsLeftOut) {
  DaemonStatus status;
  status.checkpoint = kDigest;
  status.receipt_json = "[\"" + std::string(kMaxReceiptBytes, 'x') + "\"]";
  EXPECT_LT(to_json(status).size(), 4096U);
  DescribeReply reply;
  reply.receipt_json = "[\"" + std::string(kMaxReceiptBytes - 4, 'x') + "\"]";
  reply.shard_json = reply.receipt_json;  // both do not fit
  EXPECT_LT(to_json(reply).size(), 700U * 1024);
  EXPECT_TRUE(json::parse(to_json(reply))["shard"].is_null());
  EXPECT_FALSE(json::parse(to_json(reply))["receipt"].is_null());
  status.receipt_json = "not json";
  EXPECT_TRUE(json::parse(to_json(status))["evidence"]["receipt"].is_null());
}

TEST(Messages, DescribeSurvivesTheWire) {
  DescribeReply reply;
  reply.key = kDigest;
  reply.checkpoint = kDigest;
  reply.fields = {{"tp_size", "2"}};
  reply.receipt_json = R"({"a":1})";
  reply.shard_json = R"({"tp_size":2})";
  reply.gpu_uuid = "host:0";
  reply.role = "target";
  reply.export_kind = "host";
  reply.global_rank = 5;
  reply.dp = 1;
  reply.tp = 1;
  reply.ep = 3;
  reply.tensors = 90000;
  reply.bytes = 123;
  EXPECT_EQ(describe_reply_from_json(to_json(reply)), reply);
  reply.ep.reset();
  EXPECT_EQ(describe_reply_from_json(to_json(reply)), reply);
}

TEST(Messages, SmallMessagesSurviveTheWire) {
  const HelloRequest hello{{1, "n", "v"}};
  EXPECT_EQ(hello_request_from_json(to_json(hello)), hello);
  const HelloReply answer{"0.1.0", 5, "host:0", "s", "target", DaemonState::kOrphaned};
  EXPECT_EQ(hello_reply_from_json(to_json(answer)), answer);
  const ReleaseRequest force{false};
  EXPECT_EQ(release_request_from_json(to_json(force)), force);
  EXPECT_TRUE(release_request_from_json("{}").after_leases);
  const ReleaseReply released{DaemonState::kDraining, 2};
  EXPECT_EQ(release_reply_from_json(to_json(released)), released);
  EXPECT_EQ(stop_request_from_json(to_json(StopRequest{true})), StopRequest{true});
  EXPECT_FALSE(stop_request_from_json("{}").job);
  EXPECT_EQ(stop_reply_from_json(to_json(StopReply{8})), StopReply{8});
}

TEST(Messages, AnErrorTellsBothValuesOfEveryField) {
  ErrorReply error;
  error.code = Errc::kMismatch;
  error.message = "m";
  error.fields = {{"tp_size", {"4", "2"}}, {"unknown", {"1", std::nullopt}}};
  error.retry_after_ms = 200;
  error.state = DaemonState::kLoading;
  EXPECT_EQ(error_reply_from_json(to_json(error)), error);
  const json value = json::parse(to_json(error));
  EXPECT_EQ(value["code"], "mismatch");
  EXPECT_EQ(value["fields"]["tp_size"], json({{"expected", "4"}, {"served", "2"}}));
  EXPECT_TRUE(value["fields"]["unknown"]["served"].is_null());
}

TEST(Messages, AnErrorCodeOfALaterReleaseKeepsItsText) {
  const auto error = error_reply_from_json(R"({"code":"brand-new","message":"why"})");
  EXPECT_EQ(error.code, Errc::kInternal);
  EXPECT_EQ(error.message, "why");
}

TEST(Messages, AMemberOfAWrongTypeIsNamed) {
  EXPECT_THAT(protocol_error([] { attach_request_from_json(R"({"client":{"pid":"1"}})"); }),
              HasSubstr("\"pid\""));
  EXPECT_THAT(protocol_error([] { attach_request_from_json("{}"); }), HasSubstr("client"));
  EXPECT_THAT(
      protocol_error([] {
        attach_request_from_json(R"({"mode":"steal","client":{"pid":1,"name":"x","version":"1"}})");
      }),
      HasSubstr("\"mode\""));
  EXPECT_THAT(protocol_error([] { stop_request_from_json(R"({"job":1})"); }), HasSubstr("\"job\""));
  EXPECT_THAT(protocol_error(
                  [] { hello_request_from_json(R"({"client":{"pid":3000000000,"name":"x"}})"); }),
              HasSubstr("32 bits"));
  EXPECT_THAT(protocol_error([] { release_reply_from_json(R"({"state":"READY","leases":-1})"); }),
              HasSubstr("\"leases\""));
  EXPECT_THAT(protocol_error([] { release_reply_from_json(R"({"state":"BUSY","leases":1})"); }),
              HasSubstr("\"state\""));
}

TEST(Messages, DeepNestingIsRefusedBeforeItCostsMemory) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(protocol_error([&] { attach_request_from_json(deep); }), HasSubstr("nested"));
}

TEST(Messages, InvalidUtf8IsRefusedInAndReplacedOut) {
  protocol_error([] { stop_request_from_json("{\"job\xFF\":true}"); });
  ErrorReply error;
  error.message = "file \xFF";
  EXPECT_EQ(error_reply_from_json(to_json(error)).message, "file \xEF\xBF\xBD");
}

}  // namespace
}  // namespace preload::wire
