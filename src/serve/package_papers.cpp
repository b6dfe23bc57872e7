// SPDX-License-Identifier: Apache-2.0
#include "serve/package_papers.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "serve/package.hpp"
#include "wire/message_parts.hpp"

namespace preload {

using nlohmann::json;
using wire::JsonObject;

namespace {

constexpr std::size_t kMaxGenerations = 64;
constexpr std::size_t kDigestDigits = 64;
constexpr std::uint64_t kMaxSlabBytes = std::uint64_t{1} << 48;  // more than any address space has
constexpr std::uint64_t kMaxArtifacts = 1 << 16;
constexpr std::size_t kMaxDeviceLength = 64;

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
    if (info.bytes == 0 || info.bytes > kMaxSlabBytes) object.reject("slabs", "sizes of memory");
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
  if (endpoint.device.empty() || endpoint.device.size() > kMaxDeviceLength)
    object.reject("gpu_uuid", "the name of a device");
  try {
    static_cast<void>(endpoint.stem());
  } catch (const Error&) {
    object.reject("slot", "the name of a slot");
  }
  return endpoint;
}

int rank_member(const JsonObject& object, const char* name) {
  const int rank = object.small_number(name);
  if (rank < 0) object.reject(name, "a rank");
  return rank;
}

// It is embedded in answers: what is no JSON, or nested too deeply to be written, is found here.
std::string embedded(const JsonObject& object, const char* name) {
  std::string text = object.text(name);
  if (!text.empty()) wire::parse_json(text, std::string("papers: ") + name, Errc::kProtocol);
  return text;
}

Residency residency_from(const json& value) {
  const JsonObject object(value, "papers");
  Residency residency;
  residency.endpoint = endpoint_from(object);
  residency.job = object.text("job");
  residency.model = object.text("model");
  residency.coords.global = rank_member(object, "global_rank");
  residency.coords.dp = rank_member(object, "dp");
  residency.coords.pp = rank_member(object, "pp");
  residency.coords.tp = rank_member(object, "tp");
  if (object.find("ep") != nullptr) residency.coords.ep = rank_member(object, "ep");
  const JsonObject fields(object.at("fields"), "papers: fields");
  for (const auto& [name, member] : fields.value().items())
    residency.fields[name] = fields.text(name.c_str());
  residency.key = digest(object, "key");
  residency.checkpoint = digest(object, "checkpoint");
  residency.receipt_json = embedded(object, "receipt");
  residency.shard_json = embedded(object, "shard");
  residency.generation = object.unsigned_number("generation");
  residency.local_size = object.small_number("local_size");
  if (residency.local_size < 1) object.reject("local_size", "a number of daemons");
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
  std::set<std::uint64_t> numbers;
  for (const Residency& residency : generations) {
    if (!is_same_place(residency.endpoint, generations.front().endpoint))
      object.reject("generations", "residencies of one place");
    if (!numbers.insert(residency.generation).second)
      object.reject("generations", "residencies of a number each");
  }
  for (const json& lease : object.array("leases"))
    papers.leases.push_back(wire::lease_from(lease, "papers: lease"));
  if (object.find("artifacts") != nullptr) papers.artifacts = object.unsigned_number("artifacts");
  if (papers.artifacts > kMaxArtifacts) object.reject("artifacts", "a number of artifacts");
  papers.draining = object.flag_or("draining", false);
  papers.generation = object.unsigned_number("generation");
  return papers;
}

}  // namespace preload
