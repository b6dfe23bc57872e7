// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "wire/message_parts.hpp"
#include "wire/residency_messages.hpp"

namespace preload::wire {

using nlohmann::json;

namespace {

template <class Step, std::size_t N>
using StepNames = std::array<std::pair<Step, std::string_view>, N>;

constexpr StepNames<DepositRequest::Step, 6> kDepositSteps{{
    {DepositRequest::Step::kPackage, "package"},
    {DepositRequest::Step::kLease, "lease"},
    {DepositRequest::Step::kArtifact, "artifact"},
    {DepositRequest::Step::kForget, "forget"},
    {DepositRequest::Step::kDrain, "drain"},
    {DepositRequest::Step::kWithdraw, "withdraw"},
}};
constexpr StepNames<HandoverRequest::Step, 5> kHandoverSteps{{
    {HandoverRequest::Step::kPrepare, "prepare"},
    {HandoverRequest::Step::kDrain, "drain"},
    {HandoverRequest::Step::kFree, "free"},
    {HandoverRequest::Step::kCommit, "commit"},
    {HandoverRequest::Step::kDone, "done"},
}};

template <class Step, std::size_t N>
std::string_view name_of(const StepNames<Step, N>& names, Step step) {
  return names[static_cast<std::size_t>(step)].second;
}

template <class Step, std::size_t N>
Step step_member(const StepNames<Step, N>& names, const JsonObject& object) {
  const std::string text = object.text("step");
  for (const auto& [step, name] : names)
    if (name == text) return step;
  object.reject("step", "a step that this release knows");
}

std::uint64_t fds_member(const JsonObject& object) {
  const std::uint64_t fds = object.find("fds") == nullptr ? 0 : object.unsigned_number("fds");
  if (fds > kMaxPackageFds) object.reject("fds", "at most 65536");
  return fds;
}

std::uint64_t artifacts_member(const JsonObject& object) {
  if (object.find("artifacts") == nullptr) return 0;
  const std::uint64_t artifacts = object.unsigned_number("artifacts");
  if (artifacts >= kMaxPackageFds) object.reject("artifacts", "fewer than 65536");
  return artifacts;
}

std::vector<std::string> keys_member(const JsonObject& object) {
  std::vector<std::string> keys;
  for (const json& member : object.array("keys")) {
    if (!member.is_string()) object.reject("keys", "keys of artifacts");
    keys.push_back(member.get<std::string>());
  }
  return keys;
}

std::vector<LeaseStatus> leases_member(const JsonObject& object, std::string_view what) {
  std::vector<LeaseStatus> leases;
  if (object.find("leases") == nullptr) return leases;
  for (const json& member : object.array("leases")) leases.push_back(lease_from(member, what));
  return leases;
}

}  // namespace

std::string to_json(const DepositRequest& message) {
  json out{{"step", name_of(kDepositSteps, message.step)}};
  if (message.fds > 0) out["fds"] = message.fds;
  if (message.place) out["place"] = *message.place;
  if (message.step == DepositRequest::Step::kLease) out["lease"] = lease_json(message.lease);
  if (message.step == DepositRequest::Step::kArtifact)
    out["artifact"] = artifact_json(message.artifact);
  if (message.step == DepositRequest::Step::kForget) out["keys"] = message.keys;
  return dump_json(out);
}

DepositRequest deposit_request_from_json(std::string_view text) {
  const json value = parse_json(text, "deposit", Errc::kProtocol);
  const JsonObject object(value, "deposit");
  DepositRequest request;
  request.step = step_member(kDepositSteps, object);
  request.fds = fds_member(object);
  request.place = object.optional_text("place");
  if (request.step == DepositRequest::Step::kLease)
    request.lease = lease_from(object.at("lease"), "deposit: lease");
  if (request.step == DepositRequest::Step::kArtifact)
    request.artifact = artifact_from(object.at("artifact"), "deposit: artifact");
  if (request.step == DepositRequest::Step::kForget) request.keys = keys_member(object);
  return request;
}

std::string to_json(const DepositReply& message) {
  return dump_json({{"leases", leases_json(message.leases)}, {"artifacts", message.artifacts}});
}

DepositReply deposit_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "deposit reply", Errc::kProtocol);
  const JsonObject object(value, "deposit reply");
  return {leases_member(object, "deposit reply: lease"), artifacts_member(object)};
}

std::string to_json(const AdoptRequest& message) { return dump_json({{"place", message.place}}); }

AdoptRequest adopt_request_from_json(std::string_view text) {
  const json value = parse_json(text, "adopt", Errc::kProtocol);
  return {JsonObject(value, "adopt").text("place")};
}

std::string to_json(const HandoverRequest& message) {
  return dump_json({{"step", name_of(kHandoverSteps, message.step)}});
}

HandoverRequest handover_request_from_json(std::string_view text) {
  const json value = parse_json(text, "handover", Errc::kProtocol);
  return {step_member(kHandoverSteps, JsonObject(value, "handover"))};
}

std::string to_json(const PackageReply& message) {
  return dump_json({{"fds", message.fds},
                    {"leases", leases_json(message.leases)},
                    {"artifacts", message.artifacts},
                    {"open_leases", message.open_leases}});
}

PackageReply package_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "package", Errc::kProtocol);
  const JsonObject object(value, "package");
  PackageReply reply;
  reply.fds = fds_member(object);
  reply.leases = leases_member(object, "package: lease");
  reply.artifacts = artifacts_member(object);
  if (object.find("open_leases") != nullptr)
    reply.open_leases = object.unsigned_number("open_leases");
  return reply;
}

std::string to_json(const KeeperStatus& message) {
  json deposits = json::array();
  for (const DaemonStatus& deposit : message.deposits)
    deposits.push_back(json::parse(to_json(deposit)));
  return dump_json({{"pid", message.pid},
                    {"version", message.version},
                    {"stays", message.stays},
                    {"deposits", std::move(deposits)}});
}

KeeperStatus keeper_status_from_json(std::string_view text) {
  const json value = parse_json(text, "keeper's status", Errc::kProtocol);
  const JsonObject object(value, "keeper's status");
  KeeperStatus status;
  status.pid = object.small_number("pid");
  status.version = object.text_or("version", "");
  status.stays = object.flag_or("stays", false);
  for (const json& deposit : object.array("deposits"))
    status.deposits.push_back(daemon_status_from_json(dump_json(deposit)));
  return status;
}

}  // namespace preload::wire
