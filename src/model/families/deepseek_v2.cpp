// SPDX-License-Identifier: Apache-2.0
#include "model/deepseek_rules.hpp"

namespace preload::families {

// vLLM 0.32 model_executor/models/deepseek_v2.py, DeepseekV2ForCausalLM.
extern const Family deepseek_v2{.architecture = "DeepseekV2ForCausalLM",
                                .layer_prefix = decoder::kLayerPrefix,
                                .rules = deepseek::kRules,
                                .ignored = decoder::kRotaryTables,
                                .experts = deepseek::kExperts,
                                .attention = "",
                                .draft_layers = "num_nextn_predict_layers"};

}  // namespace preload::families
