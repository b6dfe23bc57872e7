// SPDX-License-Identifier: Apache-2.0
#include "model/draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "model/layout.hpp"
#include "model/target_dtype.hpp"

namespace preload {
namespace {

constexpr std::array<std::pair<DraftMethod, std::string_view>, 3> kNames{{
    {DraftMethod::kMtp, "mtp"},
    {DraftMethod::kEagle, "eagle"},
    {DraftMethod::kEagle3, "eagle3"},
}};

constexpr auto kEagle3LlamaNames =
    std::to_array<std::string_view>({"LlamaForCausalLMEagle3", "Eagle3MiniMaxM2ForCausalLM",
                                     "Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM"});

}  // namespace

std::string_view draft_method_name(DraftMethod method) noexcept {
  return kNames[static_cast<std::size_t>(method)].second;
}

std::optional<DraftMethod> draft_method_from_name(std::string_view name) noexcept {
  for (const auto& [method, text] : kNames) {
    if (text == name) return method;
  }
  return std::nullopt;
}

std::string draft_architecture(DraftMethod method, const ModelSpec& spec) {
  const std::string& of = spec.architecture;
  switch (method) {
    case DraftMethod::kMtp:
      if (spec.model_type == "deepseek_v3" || spec.model_type == "deepseek_mtp") {
        return "DeepSeekMTPModel";
      }
      break;
    case DraftMethod::kEagle:
      return of.starts_with("Eagle") ? of : "Eagle" + of;
    case DraftMethod::kEagle3:
      // One model under several names (vllm/model_executor/models/registry.py).
      if (std::ranges::find(kEagle3LlamaNames, of) != kEagle3LlamaNames.end()) {
        return "Eagle3LlamaForCausalLM";
      }
      return of.starts_with("Eagle3") || of.ends_with("Eagle3") ? of : "Eagle3" + of;
  }
  return {};
}

std::string draft_overrides(const std::string& config_json, const std::string& architecture) {
  nlohmann::json overrides{{"architectures", {architecture}}};
  const nlohmann::json config = nlohmann::json::parse(config_json, nullptr, false);
  const auto eagle = config.is_object() ? config.find("eagle_config") : config.end();
  if (eagle == config.end() || !eagle->is_object()) return overrides.dump();
  for (const char* name : {"use_aux_hidden_state", "norm_before_fc"}) {
    if (eagle->contains(name)) overrides[name] = eagle->at(name);
  }
  const auto layers = eagle->find("eagle_aux_hidden_state_layer_ids");
  if (layers != eagle->end() && layers->is_array() && !layers->empty() &&
      !config.contains("num_aux_hidden_states")) {
    overrides["num_aux_hidden_states"] = layers->size();
  }
  return overrides.dump();
}

void follow_target(LayoutRequest& draft, const Checkpoint& target, const ModelSpec& target_spec,
                   const LayoutRequest& target_request) {
  draft.layout = target_request.layout;
  draft.dtype = target_request.dtype;
  if (draft.layout == "vllm") {
    draft.dtype = engine_dtype(target, target_spec, target_request.dtype);
  }
  draft.draft->target_vocab_size = target_spec.vocab_size;
}

void check_draft(DraftMethod method, const ModelSpec& draft, const ModelSpec& target,
                 const std::string& draft_name) {
  if (method == DraftMethod::kMtp || draft.hidden_size == target.hidden_size) return;
  throw Error(
      Errc::kModel,
      fmt::format("the draft model {} has a hidden_size of {}, its target one of {}: {} "
                  "drafts go with the model that they were trained for; name another in "
                  "--speculative-config",
                  draft_name, draft.hidden_size, target.hidden_size, draft_method_name(method)));
}

}  // namespace preload
