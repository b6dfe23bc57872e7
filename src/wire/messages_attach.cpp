// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "wire/message_parts.hpp"

namespace preload::wire {

using nlohmann::json;

namespace {

constexpr std::size_t kIpcHandleBytes = 64;  // of cudaIpcMemHandle_t

std::string to_hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

std::string ipc_handle(const JsonObject& slab) {
  const std::string hex = slab.text("handle");
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned char byte = 0;
    const char* end = hex.data() + i + 2;
    if (std::from_chars(hex.data() + i, end, byte, 16).ptr != end) break;
    out.push_back(static_cast<char>(byte));
  }
  if (hex.size() != 2 * kIpcHandleBytes || out.size() != kIpcHandleBytes)
    slab.reject("handle", "128 hex digits");
  return out;
}

}  // namespace

json slab_json(const SlabInfo& slab) {
  json out{{"bytes", slab.bytes},
           {"class", slab.cls == TensorClass::kPrivate ? "private" : "shared"},
           {"kind", slab.kind},
           {"handle", nullptr}};
  if (slab.kind == kCudaIpcKind) out["handle"] = to_hex(slab.handle);
  return out;
}

SlabInfo slab_from(const json& value, std::string_view what) {
  const JsonObject object(value, std::string(what));
  SlabInfo slab;
  slab.bytes = object.unsigned_number("bytes");
  const std::string cls = object.text("class");
  if (cls != "private" && cls != "shared") object.reject("class", "\"shared\" or \"private\"");
  slab.cls = cls == "private" ? TensorClass::kPrivate : TensorClass::kShared;
  slab.kind = object.text("kind");
  if (slab.kind != kHostKind && slab.kind != kVmmKind && slab.kind != kCudaIpcKind)
    object.reject("kind", "\"host\", \"vmm\" or \"cuda-ipc\"");
  if (slab.kind == kCudaIpcKind) slab.handle = ipc_handle(object);
  return slab;
}

namespace {

bool is_digest(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

json expectation_json(const Expectation& expect) {
  json out = json::object();
  if (expect.key) out["key"] = *expect.key;
  if (expect.checkpoint) out["checkpoint"] = *expect.checkpoint;
  if (!expect.fields.empty()) out["fields"] = expect.fields;
  return out;
}

std::optional<std::string> digest_member(const JsonObject& object, const char* name) {
  const auto text = object.optional_text(name);
  if (text && !is_digest(*text)) object.reject(name, "64 lower-case hex digits");
  return text;
}

Expectation expectation_from(const json& value, Errc code) {
  const JsonObject object(value, "expect", code);
  for (const auto& [name, member] : value.items())
    if (name != "key" && name != "checkpoint" && name != "fields")
      throw Error(code, fmt::format("expect: \"{}\" is nothing this release can check; known are "
                                    "key, checkpoint and fields",
                                    name));
  Expectation expect;
  expect.key = digest_member(object, "key");
  expect.checkpoint = digest_member(object, "checkpoint");
  if (const json* fields = object.find("fields")) {
    const JsonObject checked(*fields, "expect.fields", code);
    for (const auto& [name, member] : fields->items()) {
      if (member.is_string()) {
        expect.fields[name] = member.get<std::string>();
      } else if (member.is_number() || member.is_boolean()) {
        expect.fields[name] = member.dump();
      } else {
        checked.reject(name.c_str(), "text, a number, true or false");
      }
    }
  }
  return expect;
}

}  // namespace

Expectation expectation_from_json(std::string_view text, Errc code) {
  return expectation_from(parse_json(text, "expect", code), code);
}

std::size_t AttachReply::fd_count() const noexcept {
  return 1 + static_cast<std::size_t>(
                 std::count_if(slabs.begin(), slabs.end(),
                               [](const SlabInfo& slab) { return slab.kind != kCudaIpcKind; }));
}

std::string to_json(const AttachRequest& message) {
  return dump_json({{"expect", expectation_json(message.expect)},
                    {"mode", message.mode == AttachMode::kCopy ? "copy" : "map"},
                    {"client", client_json(message.client)}});
}

AttachRequest attach_request_from_json(std::string_view text) {
  const json value = parse_json(text, "attach", Errc::kProtocol);
  const JsonObject object(value, "attach");
  AttachRequest request;
  if (const json* expect = object.find("expect"))
    request.expect = expectation_from(*expect, Errc::kProtocol);
  const std::string mode = object.text_or("mode", "map");
  if (mode != "map" && mode != "copy") object.reject("mode", "\"map\" or \"copy\"");
  request.mode = mode == "copy" ? AttachMode::kCopy : AttachMode::kMap;
  request.client = client_member(object, "client");
  return request;
}

std::string to_json(const AttachReply& message) {
  json slabs = json::array();
  for (const SlabInfo& slab : message.slabs) slabs.push_back(slab_json(slab));
  return dump_json({{"key", message.key},
                    {"checkpoint", message.checkpoint},
                    {"generation", message.generation},
                    {"gpu_uuid", message.gpu_uuid},
                    {"device", message.device},
                    {"slot", message.slot},
                    {"role", message.role},
                    {"job", message.job},
                    {"model", message.model},
                    {"global_rank", message.global_rank},
                    {"slabs", std::move(slabs)}});
}

AttachReply attach_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "attach reply", Errc::kProtocol);
  const JsonObject object(value, "attach reply");
  AttachReply reply;
  reply.key = object.text("key");
  reply.checkpoint = object.text("checkpoint");
  reply.generation = object.unsigned_number("generation");
  reply.gpu_uuid = object.text("gpu_uuid");
  reply.device = object.text("device");
  reply.slot = object.text("slot");
  reply.role = object.text("role");
  reply.job = object.text("job");
  reply.model = object.text("model");
  reply.global_rank = object.small_number("global_rank");
  for (const json& slab : object.array("slabs"))
    reply.slabs.push_back(slab_from(slab, "attach reply: slab"));
  return reply;
}

}  // namespace preload::wire
