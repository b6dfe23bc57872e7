// SPDX-License-Identifier: Apache-2.0
#include "plan/key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/expert_share.hpp"
#include "model/family.hpp"
#include "plan/shards.hpp"

namespace preload {

std::string checkpoint_id(const Checkpoint& checkpoint, const std::vector<SourceHash>& consumed) {
  std::vector<const Hash128*> hash_of(checkpoint.tensors.size(), nullptr);
  for (const SourceHash& hash : consumed) hash_of[hash.source] = &hash.hash;
  std::vector<std::uint32_t> order(checkpoint.tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(
      order, {}, [&](std::uint32_t i) -> const std::string& { return checkpoint.tensors[i].name; });
  // One JSON object a line, keys sorted, no spaces; "hash" only where it was consumed.
  std::string text;
  for (const std::uint32_t i : order) {
    const SourceTensor& tensor = checkpoint.tensors[i];
    text += fmt::format("{{\"dtype\":\"{}\",", dtype_name(tensor.dtype));
    if (hash_of[i] != nullptr) text += fmt::format("\"hash\":\"{}\",", to_hex(*hash_of[i]));
    text += fmt::format("\"name\":{},\"shape\":[{}]}}\n", nlohmann::json(tensor.name).dump(),
                        fmt::join(tensor.shape.begin(), tensor.shape.end(), ","));
  }
  return sha256_hex(text);
}

namespace {

// How the rank shares the experts; of a model without any it is the same on every rank.
void add_expert_fields(const ModelSpec& spec, const LayoutRequest& request,
                       const ParallelSizes& sizes, const RankCoords& rank, KeyFields& fields) {
  const Family* family = find_family(spec.architecture);
  ExpertShare share;
  if (family != nullptr && family->experts.sparse != nullptr) {
    share = expert_share(*family, spec, request, sizes, rank);
  }
  fields["moe_tp_size"] = fmt::format("{}", share.tp_size);
  fields["moe_tp_rank"] = fmt::format("{}", share.tp_rank);
  fields["ep_size"] = fmt::format("{}", share.ep_size);
  fields["ep_rank"] = fmt::format("{}", share.ep_rank);
  fields["expert_placement"] = placement_name(share.placement);
  // Several backends make the same layout; where none would make another it is no field.
  fields["all2all_backend"] = share.ep_size > 1 && decides_shared_experts(*family, spec, sizes)
                                  ? request.all2all_backend
                                  : "any";
}

}  // namespace

KeyFields key_fields(const ModelSpec& spec, const LayoutRequest& request,
                     const CopyProgram& program, const ParallelSizes& sizes, const RankCoords& rank,
                     const std::string& checkpoint_id) {
  KeyFields fields;
  fields["architecture"] = spec.architecture;
  fields["checkpoint"] = checkpoint_id;
  fields["layout"] = fmt::format("{}/{}", program.layout, program.layout_version);
  fields["role"] = role_name(program.role);
  fields["quantization"] = spec.quantization.empty() ? "none" : spec.quantization;
  // Which layers it skips, the size of its blocks: all that config.json says of it counts.
  const std::string& quantization = spec.quantization_json;
  fields["quantization_config"] = quantization.empty() ? "none" : sha256_hex(quantization);
  const bool by_backend =
      program.layout == "vllm" && spec.quantization.find("mxfp4") != std::string::npos;
  fields["moe_backend"] = by_backend ? request.moe_backend : "any";
  fields["kv_cache_dtype"] = request.kv_cache_dtype;
  fields["tp_size"] = fmt::format("{}", sizes.tp);
  fields["tp_rank"] = fmt::format("{}", rank.tp);
  if (request.dtype) {
    fields["dtype"] = dtype_name(*request.dtype);
  } else {
    // What auto came to: the one type of a fused layout, or the types as stored.
    const bool uniform = program.layout != "hf" && !program.tensors.empty();
    fields["dtype"] = uniform ? dtype_name(program.tensors.front().dtype) : "stored";
  }
  if (sizes.pp > 1) {
    const Interval layers = stage_layers(spec.num_hidden_layers, sizes, rank.pp);
    fields["layers"] = fmt::format("{}:{} of {}", layers.begin, layers.begin + layers.count,
                                   spec.num_hidden_layers);
  } else {
    fields["layers"] = "all";
  }
  add_expert_fields(spec, request, sizes, rank, fields);
  // The heads decide what a rank takes of q, k and v; the tie, which names it holds twice.
  fields["heads"] = sizes.tp == 1 ? "all"
                                  : fmt::format("{}/{}x{}", spec.num_attention_heads,
                                                spec.num_key_value_heads, spec.head_dim);
  const bool tied = spec.tie_word_embeddings &&
                    std::ranges::any_of(program.tensors, [](const TargetTensor& tensor) {
                      return tensor.alias.has_value();
                    });
  fields["tied"] = tied ? "true" : "false";
  std::vector<std::string> ignored = request.ignore;
  std::ranges::sort(ignored);
  ignored.erase(std::unique(ignored.begin(), ignored.end()), ignored.end());
  fields["ignored"] = nlohmann::json(ignored).dump();
  return fields;
}

std::string key_digest(const KeyFields& fields) {
  return sha256_hex(nlohmann::json(fields).dump());
}

}  // namespace preload
