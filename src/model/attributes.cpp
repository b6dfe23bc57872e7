// SPDX-License-Identifier: Apache-2.0
#include "model/attributes.hpp"

#include <nlohmann/json.hpp>

namespace preload {
namespace {

// The engine versions that a layout fits; null for one that is no engine's.
nlohmann::json engines_of(std::string_view layout) {
  if (layout == "vllm") return "vLLM 0.32";
  if (layout == "transformers") return "transformers 5";
  return nullptr;
}

}  // namespace

std::string attributes_json(const ModelSpec& spec, const std::optional<DType>& dtype,
                            const Interval& layers, const CopyProgram& program,
                            std::span<const std::string_view> others,
                            const std::optional<DraftOwns>& draft) {
  using nlohmann::json;
  json attributes{
      {"layout", program.layout},
      {"layout_version", program.layout_version},
      {"fits", engines_of(program.layout)},
      {"served_whole", others},
      {"architecture", spec.architecture},
      {"model_type", spec.model_type},
      {"dtype", dtype ? json(dtype_name(*dtype)) : json(nullptr)},
      {"quantization", spec.quantization.empty() ? json(nullptr) : json(spec.quantization)},
      {"num_hidden_layers", spec.num_hidden_layers},
      {"first_layer", layers.begin},
      {"layers", layers.count},
      {"tie_word_embeddings", spec.tie_word_embeddings},
  };
  if (draft) {
    attributes["has_own_embed_tokens"] = draft->embed_tokens;
    attributes["has_own_lm_head"] = draft->lm_head;
  }
  return attributes.dump();
}

}  // namespace preload
