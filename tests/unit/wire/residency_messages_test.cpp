// SPDX-License-Identifier: Apache-2.0
#include "wire/residency_messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace preload::wire {
namespace {

using nlohmann::json;

template <class Read>
std::string protocol_error(Read read, const char* text) {
  try {
    read(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kProtocol);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << text;
  return {};
}

TEST(ResidencyMessages, SurviveTheWire) {
  DepositRequest lease;
  lease.step = DepositRequest::Step::kLease;
  lease.lease = {7, "engine", 2.5, 3};
  EXPECT_EQ(deposit_request_from_json(to_json(lease)), lease);
  DepositRequest withdraw;
  withdraw.step = DepositRequest::Step::kWithdraw;
  withdraw.place = "d57c11ff1ae092be.a_draft";
  EXPECT_EQ(deposit_request_from_json(to_json(withdraw)), withdraw);
  DepositRequest artifact;
  artifact.step = DepositRequest::Step::kArtifact;
  artifact.artifact = {"a/b", 12, "text"};
  EXPECT_EQ(deposit_request_from_json(to_json(artifact)), artifact);
  DepositRequest forget;
  forget.step = DepositRequest::Step::kForget;
  forget.keys = {"a", "b/c"};
  EXPECT_EQ(deposit_request_from_json(to_json(forget)), forget);
  const DepositReply reply{{{7, "engine", 2.5, 3}, {8, "other", 0, std::nullopt}}, 5};
  EXPECT_EQ(deposit_reply_from_json(to_json(reply)), reply);
  EXPECT_EQ(adopt_request_from_json(to_json(AdoptRequest{"x"})), AdoptRequest{"x"});
  using Step = HandoverRequest::Step;
  for (const Step step : {Step::kPrepare, Step::kDrain, Step::kFree, Step::kCommit, Step::kDone})
    EXPECT_EQ(handover_request_from_json(to_json(HandoverRequest{step})).step, step);
  PackageReply package;
  package.fds = 3;
  package.open_leases = 4;
  package.leases = {{7, "engine", 2.5, 3}};
  package.artifacts = 6;
  EXPECT_EQ(package_reply_from_json(to_json(package)), package);
  KeeperStatus keeper;
  keeper.pid = 5;
  keeper.stays = true;
  keeper.deposits.emplace_back().state = DaemonState::kOrphaned;
  EXPECT_EQ(keeper_status_from_json(to_json(keeper)), keeper);
  const HelloRequest hello{{1, "x", ""}, "stem"};
  EXPECT_EQ(hello_request_from_json(to_json(hello)), hello);
}

TEST(ResidencyMessages, LookAsTheProtocolSays) {
  DepositRequest request;
  request.fds = 4;
  EXPECT_EQ(json::parse(to_json(request)), json::parse(R"({"step":"package","fds":4})"));
  EXPECT_EQ(json::parse(to_json(HandoverRequest{HandoverRequest::Step::kDone})),
            json::parse(R"({"step":"done"})"));
}

TEST(ResidencyMessages, AreReadThoughALaterReleaseSaysMore) {
  EXPECT_EQ(deposit_request_from_json(R"({"step":"drain","later":[1]})").step,
            DepositRequest::Step::kDrain);
  EXPECT_EQ(package_reply_from_json(R"({"fds":2,"later":{}})").fds, 2U);
}

TEST(ResidencyMessages, NameTheMemberThatIsWrong) {
  using testing::HasSubstr;
  EXPECT_THAT(protocol_error(deposit_request_from_json, R"({"step":"seize"})"), HasSubstr("step"));
  EXPECT_THAT(protocol_error(deposit_request_from_json, R"({"step":"lease"})"), HasSubstr("lease"));
  EXPECT_THAT(protocol_error(deposit_request_from_json, R"({"step":"package","fds":65537})"),
              HasSubstr("fds"));
  EXPECT_THAT(protocol_error(deposit_request_from_json, R"({"step":"package","fds":-1})"),
              HasSubstr("fds"));
  EXPECT_THAT(protocol_error(handover_request_from_json, "{}"), HasSubstr("step"));
  EXPECT_THAT(protocol_error(adopt_request_from_json, R"({"place":3})"), HasSubstr("place"));
  EXPECT_THAT(protocol_error(keeper_status_from_json, R"({"pid":1})"), HasSubstr("deposits"));
}

}  // namespace
}  // namespace preload::wire
