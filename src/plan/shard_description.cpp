// SPDX-License-Identifier: Apache-2.0
#include "plan/shard_description.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/expert_share.hpp"

namespace preload {
namespace {

using nlohmann::json;

Role role_from_name(const std::string& name) {
  if (name == role_name(Role::kTarget)) return Role::kTarget;
  if (name == role_name(Role::kDraft)) return Role::kDraft;
  throw Error(Errc::kProtocol, fmt::format("shard description: unknown role '{}'", name));
}

ExpertPlacement placement_from_name(const std::string& name) {
  for (const ExpertPlacement placement : {ExpertPlacement::kLinear, ExpertPlacement::kRoundRobin}) {
    if (name == placement_name(placement)) return placement;
  }
  throw Error(Errc::kProtocol, fmt::format("shard description: unknown placement '{}'", name));
}

json dtype_json(const std::optional<DType>& dtype) {
  return dtype ? json(dtype_name(*dtype)) : json(nullptr);
}

std::optional<DType> dtype_from_json(const json& value) {
  if (value.is_null()) return std::nullopt;
  const auto name = value.get<std::string>();
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) {
    throw Error(Errc::kProtocol, fmt::format("shard description: unknown dtype '{}'", name));
  }
  return dtype;
}

json draft_json(const std::optional<DraftRequest>& draft) {
  if (!draft) return nullptr;
  return {{"method", draft_method_name(draft->method)},
          {"target_vocab_size", draft->target_vocab_size}};
}

std::optional<DraftRequest> draft_from_json(const json& value) {
  if (value.is_null()) return std::nullopt;
  const auto name = value.at("method").get<std::string>();
  const std::optional<DraftMethod> method = draft_method_from_name(name);
  if (!method) {
    throw Error(Errc::kProtocol, fmt::format("shard description: unknown draft '{}'", name));
  }
  return DraftRequest{*method, value.at("target_vocab_size").get<std::int64_t>()};
}

}  // namespace

std::string to_json(const ShardDescription& shard) {
  return json{
      {"model", shard.model},
      {"directory", shard.directory},
      {"hf_overrides", shard.hf_overrides},
      {"layout", shard.request.layout},
      {"layout_version", shard.layout_version},
      {"dtype", dtype_json(shard.request.dtype)},
      {"ignore", shard.request.ignore},
      {"expert_placement", placement_name(shard.request.placement)},
      {"all2all_backend", shard.request.all2all_backend},
      {"moe_backend", shard.request.moe_backend},
      {"kv_cache_dtype", shard.request.kv_cache_dtype},
      {"role", role_name(shard.role)},
      {"draft", draft_json(shard.request.draft)},
      {"dp_size", shard.sizes.dp},
      {"pp_size", shard.sizes.pp},
      {"tp_size", shard.sizes.tp},
      {"expert_parallel", shard.sizes.expert_parallel},
      {"stage_layers", shard.sizes.stage_layers},
      {"global_rank", shard.rank.global},
      {"dp_rank", shard.rank.dp},
      {"pp_rank", shard.rank.pp},
      {"tp_rank", shard.rank.tp},
      {"ep_rank", shard.rank.ep ? json(*shard.rank.ep) : json(nullptr)},
      {"job", shard.job},
      {"key", shard.key},
      {"fields", shard.fields},
      {"checkpoint", shard.checkpoint_id},
      {"attributes", json::parse(shard.attributes_json)},
  }
      .dump();
}

ShardDescription shard_from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    ShardDescription shard;
    object.at("model").get_to(shard.model);
    object.at("directory").get_to(shard.directory);
    object.at("hf_overrides").get_to(shard.hf_overrides);
    object.at("layout").get_to(shard.request.layout);
    object.at("layout_version").get_to(shard.layout_version);
    shard.request.dtype = dtype_from_json(object.at("dtype"));
    object.at("ignore").get_to(shard.request.ignore);
    shard.request.draft = draft_from_json(object.at("draft"));
    shard.request.placement = placement_from_name(object.at("expert_placement").get<std::string>());
    object.at("all2all_backend").get_to(shard.request.all2all_backend);
    object.at("moe_backend").get_to(shard.request.moe_backend);
    object.at("kv_cache_dtype").get_to(shard.request.kv_cache_dtype);
    shard.role = role_from_name(object.at("role").get<std::string>());
    object.at("dp_size").get_to(shard.sizes.dp);
    object.at("pp_size").get_to(shard.sizes.pp);
    object.at("tp_size").get_to(shard.sizes.tp);
    object.at("expert_parallel").get_to(shard.sizes.expert_parallel);
    object.at("stage_layers").get_to(shard.sizes.stage_layers);
    object.at("global_rank").get_to(shard.rank.global);
    object.at("dp_rank").get_to(shard.rank.dp);
    object.at("pp_rank").get_to(shard.rank.pp);
    object.at("tp_rank").get_to(shard.rank.tp);
    if (!object.at("ep_rank").is_null()) shard.rank.ep = object.at("ep_rank").get<int>();
    object.at("job").get_to(shard.job);
    object.at("key").get_to(shard.key);
    object.at("fields").get_to(shard.fields);
    object.at("checkpoint").get_to(shard.checkpoint_id);
    shard.attributes_json = object.at("attributes").dump();
    return shard;
  } catch (const json::exception& error) {
    throw Error(Errc::kProtocol, fmt::format("shard description: {}", error.what()));
  }
}

}  // namespace preload
