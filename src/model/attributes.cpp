// SPDX-License-Identifier: Apache-2.0
#include "model/attributes.hpp"

#include <nlohmann/json.hpp>

namespace preload {

std::string attributes_json(const ModelSpec& spec, const std::optional<DType>& dtype,
                            const Interval& layers) {
  using nlohmann::json;
  return json{
      {"architecture", spec.architecture},
      {"model_type", spec.model_type},
      {"dtype", dtype ? json(dtype_name(*dtype)) : json(nullptr)},
      {"quantization", spec.quantization.empty() ? json(nullptr) : json(spec.quantization)},
      {"num_hidden_layers", spec.num_hidden_layers},
      {"first_layer", layers.begin},
      {"layers", layers.count},
      {"tie_word_embeddings", spec.tie_word_embeddings},
  }
      .dump();
}

}  // namespace preload
