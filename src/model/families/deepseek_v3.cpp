// SPDX-License-Identifier: Apache-2.0
#include "model/deepseek_rules.hpp"

namespace preload::families {

// vLLM 0.32 model_executor/models/deepseek_v2.py, DeepseekV3ForCausalLM: DeepSeek-V3 and R1, and
// Kimi-K2, whose config.json names the same architecture.
extern const Family deepseek_v3{.architecture = "DeepseekV3ForCausalLM",
                                .layer_prefix = decoder::kLayerPrefix,
                                .rules = deepseek::kRules,
                                .ignored = decoder::kRotaryTables,
                                .experts = deepseek::kExperts,
                                .attention = "",
                                .draft_layers = "num_nextn_predict_layers"};

}  // namespace preload::families
