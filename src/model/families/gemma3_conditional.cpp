// SPDX-License-Identifier: Apache-2.0
#include "model/gemma_rules.hpp"

namespace preload::families {
namespace {

// Old and new exports; Hugging Face's converter of 2025 turned the names round.
constexpr NamePrefixes kStored[] = {{"language_model.model.", "language_model.lm_head."},
                                    {"model.language_model.", "lm_head."}};

// transformers 5 conversion_mapping.py, "llava" and SigLIP's.
constexpr OtherPart kOthers[] = {
    {"vision_tower.vision_model.", "model.vision_tower."},
    {"vision_tower.", "model.vision_tower."},
    {"multi_modal_projector.", "model.multi_modal_projector."},
    {"model.vision_tower.vision_model.", "model.vision_tower."},
    {"model.vision_tower.", "model.vision_tower."},
    {"model.multi_modal_projector.", "model.multi_modal_projector."},
};

// Older exports hold the vision tower's positions, 0, 1, 2 and so on, too.
constexpr std::string_view kIgnored[] = {"*rotary_emb.inv_freq", "*.embeddings.position_ids"};

}  // namespace

// vLLM 0.32 model_executor/models/gemma3_mm.py: Gemma 3 with its vision tower.
extern const Family gemma3_conditional{
    .architecture = "Gemma3ForConditionalGeneration",
    .layer_prefix = decoder::kLayerPrefix,
    .rules = gemma::kGemma3Rules,
    .ignored = kIgnored,
    .ends_on_every_stage = true,
    .defaults = gemma::kDefaults,
    .multimodal = {.stored = kStored,
                   .vllm = {"language_model.model.", "language_model.lm_head."},
                   .transformers = {"model.language_model.", "lm_head."},
                   .others = kOthers}};

}  // namespace preload::families
