// SPDX-License-Identifier: Apache-2.0
#include "wire/messages.hpp"

#include <array>
#include <utility>

#include "wire/json_object.hpp"
#include "wire/message_parts.hpp"

namespace preload::wire {

using nlohmann::json;

namespace {

constexpr std::array<std::pair<DaemonState, std::string_view>, 6> kStates{{
    {DaemonState::kLoading, "LOADING"},
    {DaemonState::kReady, "READY"},
    {DaemonState::kDraining, "DRAINING"},
    {DaemonState::kReleased, "RELEASED"},
    {DaemonState::kFailed, "FAILED"},
    {DaemonState::kOrphaned, "ORPHANED"},
}};

json mismatch_json(const FieldMismatch& mismatch) {
  json out{{"expected", mismatch.expected}, {"served", nullptr}};
  if (mismatch.served) out["served"] = *mismatch.served;
  return out;
}

}  // namespace

std::string_view state_name(DaemonState state) noexcept {
  return kStates[static_cast<std::size_t>(state)].second;
}

std::optional<DaemonState> state_from_name(std::string_view name) noexcept {
  for (const auto& [state, text] : kStates)
    if (text == name) return state;
  return std::nullopt;
}

DaemonState state_member(const JsonObject& object, const char* name) {
  const auto state = state_from_name(object.text(name));
  if (!state) object.reject(name, "a daemon's state");
  return *state;
}

json client_json(const ClientIdentity& client) {
  return {{"pid", client.pid}, {"name", client.name}, {"version", client.version}};
}

ClientIdentity client_member(const JsonObject& object, const char* name) {
  const JsonObject client(object.at(name), name);
  return {client.small_number("pid"), client.text("name"), client.text_or("version", "")};
}

std::string to_json(const HelloRequest& message) {
  json out{{"client", client_json(message.client)}};
  if (message.place) out["place"] = *message.place;
  return dump_json(out);
}

HelloRequest hello_request_from_json(std::string_view text) {
  const json value = parse_json(text, "hello", Errc::kProtocol);
  const JsonObject object(value, "hello");
  return {client_member(object, "client"), object.optional_text("place")};
}

std::string to_json(const HelloReply& message) {
  return dump_json({{"version", message.version},
                    {"pid", message.pid},
                    {"gpu_uuid", message.gpu_uuid},
                    {"slot", message.slot},
                    {"role", message.role},
                    {"state", state_name(message.state)}});
}

HelloReply hello_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "hello reply", Errc::kProtocol);
  const JsonObject object(value, "hello reply");
  return {object.text("version"), object.small_number("pid"), object.text("gpu_uuid"),
          object.text("slot"),    object.text("role"),        state_member(object, "state")};
}

std::string to_json(const ReleaseRequest& message) {
  return dump_json({{"after_leases", message.after_leases}});
}

ReleaseRequest release_request_from_json(std::string_view text) {
  const json value = parse_json(text, "release", Errc::kProtocol);
  return {JsonObject(value, "release").flag_or("after_leases", true)};
}

std::string to_json(const ReleaseReply& message) {
  return dump_json({{"state", state_name(message.state)}, {"leases", message.leases}});
}

ReleaseReply release_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "release reply", Errc::kProtocol);
  const JsonObject object(value, "release reply");
  return {state_member(object, "state"), object.unsigned_number("leases")};
}

std::string to_json(const StopRequest& message) { return dump_json({{"job", message.job}}); }

StopRequest stop_request_from_json(std::string_view text) {
  const json value = parse_json(text, "stop", Errc::kProtocol);
  return {JsonObject(value, "stop").flag_or("job", false)};
}

std::string to_json(const StopReply& message) { return dump_json({{"pid", message.pid}}); }

StopReply stop_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "stop reply", Errc::kProtocol);
  return {JsonObject(value, "stop reply").small_number("pid")};
}

std::string to_json(const ErrorReply& message) {
  json fields = json::object();
  for (const auto& [name, mismatch] : message.fields) fields[name] = mismatch_json(mismatch);
  json out{{"code", wire_code(message.code)},
           {"message", message.message},
           {"fields", std::move(fields)},
           {"retry_after_ms", nullptr}};
  if (message.retry_after_ms) out["retry_after_ms"] = *message.retry_after_ms;
  if (message.state) out["state"] = state_name(*message.state);
  return dump_json(out);
}

ErrorReply error_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "error", Errc::kProtocol);
  const JsonObject object(value, "error");
  ErrorReply out;
  // A code of a later release is some failure of the daemon's; its text still tells.
  out.code = errc_from_wire(object.text("code")).value_or(Errc::kInternal);
  out.message = object.text("message");
  if (const json* fields = object.find("fields")) {
    const JsonObject checked(*fields, "error.fields");
    for (const auto& [name, member] : checked.value().items()) {
      const JsonObject mismatch(member, "error.fields." + name);
      out.fields[name] = {mismatch.text("expected"), mismatch.optional_text("served")};
    }
  }
  if (object.find("retry_after_ms") != nullptr)
    out.retry_after_ms = object.small_number("retry_after_ms");
  if (object.find("state") != nullptr) out.state = state_member(object, "state");
  return out;
}

}  // namespace preload::wire
