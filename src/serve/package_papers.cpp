// SPDX-License-Identifier: Apache-2.0
#include "serve/package_papers.hpp"

#include <algorithm>
#include <utility>

#include "serve/package.hpp"
#include "wire/message_parts.hpp"

namespace preload {

using nlohmann::json;
using wire::JsonObject;

namespace {

constexpr std::size_t kMaxGenerations = 64;
constexpr std::size_t kDigestDigits = 64;

json slabs_json(const Residency& residency) {
  json slabs = json::array();
  for (const SlabHandle& slab : residency.slabs)
    slabs.push_back(wire::slab_json(
        {slab.bytes, slab.cls, std::string(kind_on_wire(slab.kind)), slab.ipc_bytes}));
  return slabs;
}

std::vector<SlabHandle> slabs_from(const JsonObject& object) {
  std::vector<SlabHandle> slabs;
  for (const json& member : object.array("slabs")) {
    const wire::SlabInfo info = wire::slab_from(member, "papers: slab");
    if (info.kind == wire::kCudaIpcKind) object.reject("slabs", "memory that outlives its process");
    SlabHandle slab;
    slab.kind = info.kind == wire::kHostKind ? HandleKind::kHost : HandleKind::kVmm;
    slab.cls = info.cls;
    slab.bytes = info.bytes;
    slabs.push_back(std::move(slab));
  }
  return slabs;
}

json residency_json(const Residency& residency) {
  json ep = nullptr;
  if (residency.coords.ep) ep = *residency.coords.ep;
  return {{"gpu_uuid", residency.endpoint.device},
          {"slot", residency.endpoint.slot},
          {"role", role_name(residency.endpoint.role)},
          {"job", residency.job},
          {"model", residency.model},
          {"global_rank", residency.coords.global},
          {"dp", residency.coords.dp},
          {"pp", residency.coords.pp},
          {"tp", residency.coords.tp},
          {"ep", ep},
          {"fields", residency.fields},
          {"key", residency.key},
          {"checkpoint", residency.checkpoint},
          {"receipt", residency.receipt_json},
          {"shard", residency.shard_json},
          {"generation", residency.generation},
          {"local_size", residency.local_size},
          {"tensors", residency.tensor_count},
          {"slabs", slabs_json(residency)}};
}

std::string digest(const JsonObject& object, const char* name) {
  std::string text = object.text(name);
  const bool is_hex = std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (text.size() != kDigestDigits || !is_hex) object.reject(name, "64 hex digits");
  return text;
}

Endpoint endpoint_from(const JsonObject& object) {
  const std::string role = object.text("role");
  const bool draft = role == role_name(Role::kDraft);
  if (!draft && role != role_name(Role::kTarget)) object.reject("role", "target or draft");
  Endpoint endpoint{object.text("gpu_uuid"), object.text("slot"),
                    draft ? Role::kDraft : Role::kTarget};
  try {
    static_cast<void>(endpoint.stem());
  } catch (const Error&) {
    object.reject("slot", "the name of a slot");
  }
  return endpoint;
}

Residency residency_from(const json& value) {
  const JsonObject object(value, "papers");
  Residency residency;
  residency.endpoint = endpoint_from(object);
  residency.job = object.text("job");
  residency.model = object.text("model");
  residency.coords.global = object.small_number("global_rank");
  residency.coords.dp = object.small_number("dp");
  residency.coords.pp = object.small_number("pp");
  residency.coords.tp = object.small_number("tp");
  if (object.find("ep") != nullptr) residency.coords.ep = object.small_number("ep");
  const JsonObject fields(object.at("fields"), "papers: fields");
  for (const auto& [name, member] : fields.value().items())
    residency.fields[name] = fields.text(name.c_str());
  residency.key = digest(object, "key");
  residency.checkpoint = digest(object, "checkpoint");
  residency.receipt_json = object.text("receipt");
  residency.shard_json = object.text("shard");
  residency.generation = object.unsigned_number("generation");
  residency.local_size = object.small_number("local_size");
  residency.tensor_count = object.unsigned_number("tensors");
  residency.slabs = slabs_from(object);
  return residency;
}

}  // namespace

std::string write_papers(const PackagePapers& papers,
                         const std::vector<const Residency*>& generations) {
  json all = json::array();
  for (const Residency* residency : generations) all.push_back(residency_json(*residency));
  return wire::dump_json({{"generations", std::move(all)},
                          {"leases", wire::leases_json(papers.leases)},
                          {"artifacts", papers.artifacts},
                          {"draining", papers.draining},
                          {"generation", papers.generation},
                          {"has_lock", papers.has_lock}});
}

PackagePapers read_papers(std::string_view text, std::vector<Residency>& generations) {
  const json value = wire::parse_json(text, "papers", Errc::kProtocol);
  const JsonObject object(value, "papers");
  for (const json& member : object.array("generations"))
    generations.push_back(residency_from(member));
  PackagePapers papers;
  papers.has_lock = object.flag_or("has_lock", false);
  if ((generations.empty() && !papers.has_lock) || generations.size() > kMaxGenerations)
    object.reject("generations", "1 to 64 residencies");
  for (const Residency& residency : generations)
    if (!is_same_place(residency.endpoint, generations.front().endpoint))
      object.reject("generations", "residencies of one place");
  for (const json& lease : object.array("leases"))
    papers.leases.push_back(wire::lease_from(lease, "papers: lease"));
  if (object.find("artifacts") != nullptr) papers.artifacts = object.unsigned_number("artifacts");
  papers.draining = object.flag_or("draining", false);
  papers.generation = object.unsigned_number("generation");
  return papers;
}

}  // namespace preload
