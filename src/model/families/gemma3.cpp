// SPDX-License-Identifier: Apache-2.0
#include "model/gemma_rules.hpp"

namespace preload::families {

// vLLM 0.32 model_executor/models/gemma3.py: the text models (1B, and text exports of the others).
extern const Family gemma3{.architecture = "Gemma3ForCausalLM",
                           .layer_prefix = decoder::kLayerPrefix,
                           .rules = gemma::kGemma3Rules,
                           .ignored = decoder::kRotaryTables,
                           .ends_on_every_stage = true,
                           .defaults = gemma::kDefaults};

}  // namespace preload::families
