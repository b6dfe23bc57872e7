// SPDX-License-Identifier: Apache-2.0
#include "wire/counters_json.hpp"
#include "wire/message_parts.hpp"
#include "wire/progress_json.hpp"

namespace preload::wire {

using nlohmann::json;

namespace {

json optional_json(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

// Beside a receipt in one frame.
constexpr std::size_t kMaxShardBytes = 128 * 1024;

// What is JSON already; what is not (or is too large for its frame) is none.
json embedded_json(const std::string& text, std::size_t most = kMaxReceiptBytes) {
  if (text.empty() || text.size() > most) return nullptr;
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json(nullptr) : value;
}

std::string embedded_member(const JsonObject& object, const char* name) {
  const json* value = object.find(name);
  return value == nullptr ? std::string() : dump_json(*value);
}

}  // namespace

json lease_json(const LeaseStatus& lease) {
  json out{{"pid", lease.pid}, {"name", lease.name}, {"age_s", lease.age_s}};
  if (lease.generation) out["generation"] = *lease.generation;
  return out;
}

LeaseStatus lease_from(const json& value, std::string_view what) {
  const JsonObject object(value, std::string(what));
  LeaseStatus lease{object.small_number("pid"), object.text("name"), object.number("age_s")};
  if (object.find("generation") != nullptr) lease.generation = object.unsigned_number("generation");
  return lease;
}

json leases_json(const std::vector<LeaseStatus>& leases) {
  json out = json::array();
  for (const LeaseStatus& lease : leases) out.push_back(lease_json(lease));
  return out;
}

std::string to_json(const DescribeReply& message) {
  json ep = nullptr;
  if (message.ep) ep = *message.ep;
  return dump_json({{"key", message.key},
                    {"checkpoint", message.checkpoint},
                    {"fields", message.fields},
                    {"receipt", embedded_json(message.receipt_json)},
                    {"shard", embedded_json(message.shard_json, kMaxShardBytes)},
                    {"gpu_uuid", message.gpu_uuid},
                    {"slot", message.slot},
                    {"role", message.role},
                    {"job", message.job},
                    {"model", message.model},
                    {"export", message.export_kind},
                    {"global_rank", message.global_rank},
                    {"dp", message.dp},
                    {"pp", message.pp},
                    {"tp", message.tp},
                    {"ep", ep},
                    {"generation", message.generation},
                    {"tensors", message.tensors},
                    {"bytes", message.bytes}});
}

DescribeReply describe_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "describe reply", Errc::kProtocol);
  const JsonObject object(value, "describe reply");
  DescribeReply reply;
  reply.key = object.text("key");
  reply.checkpoint = object.text("checkpoint");
  const JsonObject fields(object.at("fields"), "describe reply: fields");
  for (const auto& [name, member] : fields.value().items())
    reply.fields[name] = fields.text(name.c_str());
  reply.receipt_json = embedded_member(object, "receipt");
  reply.shard_json = embedded_member(object, "shard");
  reply.gpu_uuid = object.text("gpu_uuid");
  reply.slot = object.text("slot");
  reply.role = object.text("role");
  reply.job = object.text("job");
  reply.model = object.text("model");
  reply.export_kind = object.text("export");
  reply.global_rank = object.small_number("global_rank");
  reply.dp = object.small_number("dp");
  reply.pp = object.small_number("pp");
  reply.tp = object.small_number("tp");
  if (object.find("ep") != nullptr) reply.ep = object.small_number("ep");
  reply.generation = object.unsigned_number("generation");
  reply.tensors = object.unsigned_number("tensors");
  reply.bytes = object.unsigned_number("bytes");
  return reply;
}

std::string to_json(const DaemonStatus& message) {
  json out{{"gpu_uuid", message.gpu_uuid},
           {"slot", message.slot},
           {"role", message.role},
           {"job", message.job},
           {"pid", message.pid},
           {"global_rank", message.global_rank},
           {"state", state_name(message.state)},
           {"model", message.model},
           {"key", optional_json(message.key)},
           {"evidence", nullptr},
           {"bytes", message.bytes},
           {"overhead_bytes", message.overhead_bytes},
           {"generation", message.generation},
           {"progress", progress_json(message.progress)},
           {"export", optional_json(message.export_kind)},
           {"version", optional_json(message.version)},
           {"local_size", message.local_size},
           {"leases", leases_json(message.leases)},
           {"counters", counters_json(message.counters)}};
  if (!message.checkpoint.empty())
    out["evidence"] = {{"checkpoint", message.checkpoint},
                       {"receipt", embedded_json(message.receipt_json)}};
  if (!message.engine_caches.empty()) out["engine_caches"] = message.engine_caches;
  if (!message.code.empty() || !message.text.empty())
    out["failure"] = {{"code", message.code}, {"text", message.text}};
  return dump_json(out);
}

DaemonStatus daemon_status_from_json(std::string_view text) {
  const json value = parse_json(text, "status reply", Errc::kProtocol);
  const JsonObject object(value, "status reply");
  DaemonStatus status;
  status.gpu_uuid = object.text("gpu_uuid");
  status.slot = object.text("slot");
  status.role = object.text("role");
  status.job = object.text("job");
  status.pid = object.small_number("pid");
  status.global_rank = object.small_number("global_rank");
  status.state = state_member(object, "state");
  status.model = object.text("model");
  status.key = object.text_or("key", "");
  if (const json* evidence = object.find("evidence")) {
    const JsonObject checked(*evidence, "status reply: evidence");
    status.checkpoint = checked.text("checkpoint");
    status.receipt_json = embedded_member(checked, "receipt");
  }
  status.bytes = object.unsigned_number("bytes");
  status.overhead_bytes = object.unsigned_number("overhead_bytes");
  status.generation = object.unsigned_number("generation");
  status.progress = progress_member(object, "progress", "status reply: progress");
  status.export_kind = object.text_or("export", "");
  status.version = object.text_or("version", "");
  status.local_size = object.small_number_or("local_size", 1);
  status.engine_caches = object.text_or("engine_caches", "");
  if (const json* failure = object.find("failure")) {
    const JsonObject checked(*failure, "status reply: failure");
    status.code = checked.text("code");
    status.text = checked.text("text");
  }
  for (const json& member : object.array("leases"))
    status.leases.push_back(lease_from(member, "status reply: lease"));
  status.counters = counters_member(object, "counters");
  return status;
}

}  // namespace preload::wire
