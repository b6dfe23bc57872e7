// SPDX-License-Identifier: Apache-2.0
#include "model/draft_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

std::int64_t number_or(const ModelSpec& spec, const char* field, std::int64_t otherwise) {
  return spec.config.has(field) ? spec.config.number(field) : otherwise;
}

constexpr Extent kTwoHidden{"2 * hidden_size",
                            [](const ModelSpec& s) { return 2 * s.hidden_size; }};
constexpr Extent kTargetHidden{"target_hidden_size", [](const ModelSpec& s) {
                                 return number_or(s, "target_hidden_size", s.hidden_size);
                               }};
constexpr Extent kAuxiliary{"target_hidden_size * num_aux_hidden_states", [](const ModelSpec& s) {
                              return number_or(s, "target_hidden_size", s.hidden_size) *
                                     number_or(s, "num_aux_hidden_states", 3);
                            }};
constexpr Extent kDraftVocab{"draft_vocab_size", [](const ModelSpec& s) {
                               return number_or(s, "draft_vocab_size", s.vocab_size);
                             }};

constexpr Presence kUsesAuxiliary = [](const ModelSpec& s) {
  return !s.config.has("use_aux_hidden_state") || s.config.flag("use_aux_hidden_state");
};
constexpr Presence kNormBeforeJoin = [](const ModelSpec& s) {
  return kUsesAuxiliary(s) && s.config.flag("norm_before_fc");
};
constexpr Presence kNormOfEach = [](const ModelSpec& s) {
  return kUsesAuxiliary(s) && s.config.flag("fc_norm");
};
// The draft knows the more frequent tokens only.
constexpr Presence kOwnVocabulary = [](const ModelSpec& s) {
  return number_or(s, "draft_vocab_size", s.vocab_size) != s.target_vocab_size;
};
constexpr Presence kQkvBias = [](const ModelSpec& s) { return s.config.flag("attention_bias"); };

constexpr Part kWideQkvParts[] = {
    {"self_attn.q_proj.weight", Split::kQueryHeads, extent::kQuery, kTwoHidden},
    {"self_attn.k_proj.weight", Split::kKvHeads, extent::kKeyValue, kTwoHidden},
    {"self_attn.v_proj.weight", Split::kKvHeads, extent::kKeyValue, kTwoHidden}};
constexpr Part kHiddenNormPart[] = {{"hidden_norm.weight", Split::kReplicated, extent::kHidden}};
constexpr Part kJoinPart[] = {{"model.fc.weight", Split::kReplicated, extent::kHidden, kAuxiliary}};
constexpr Part kJoinNormPart[] = {{"model.input_norm.weight", Split::kReplicated, kAuxiliary}};
constexpr Part kNormOfFirstPart[] = {{"model.fc_norm.0.weight", Split::kReplicated, kTargetHidden}};
constexpr Part kNormOfSecondPart[] = {
    {"model.fc_norm.1.weight", Split::kReplicated, kTargetHidden}};
constexpr Part kNormOfThirdPart[] = {{"model.fc_norm.2.weight", Split::kReplicated, kTargetHidden}};
constexpr Part kDraftHeadPart[] = {
    {"lm_head.weight", Split::kVocabRows, kDraftVocab, extent::kHidden}};
constexpr Part kTokenIdsPart[] = {{"d2t", Split::kReplicated, kDraftVocab}};

constexpr Rule kHiddenNorm{.target = "hidden_norm.weight", .parts = kHiddenNormPart};

constexpr Rule last(std::string_view target, std::span<const Part> parts,
                    Presence presence = nullptr) {
  return {.scope = Scope::kLastStage, .target = target, .parts = parts, .presence = presence};
}
constexpr Rule token_ids() {
  Rule rule = last("draft_id_to_target_id", kTokenIdsPart, kOwnVocabulary);
  rule.scope = Scope::kFirstStage;
  rule.dtype = DType::kI64;
  return rule;
}

// vLLM 0.32 model_executor/models/llama_eagle3.py: the first layer takes embedding and hidden state
// side by side; fc joins the hidden states of several of the target's layers.
constexpr Rule kRules[] = {
    token_ids(),
    draft::if_stored(kEmbedding),
    draft::first({.target = "self_attn.qkv_proj.weight", .parts = kWideQkvParts}),
    draft::later(kQkvWeight),
    qkv_bias(kQkvBias),
    kOutputWeight,
    kOutputBias,
    kGateUpWeight,
    kGateUpBias,
    kDownWeight,
    kDownBias,
    kInputNorm,
    kPostAttentionNorm,
    draft::first(kHiddenNorm),
    draft::later(draft::if_stored(kHiddenNorm)),
    last("model.fc.weight", kJoinPart, kUsesAuxiliary),
    last("model.input_norm.weight", kJoinNormPart, kNormBeforeJoin),
    last("model.fc_norm.0.weight", kNormOfFirstPart, kNormOfEach),
    last("model.fc_norm.1.weight", kNormOfSecondPart, kNormOfEach),
    last("model.fc_norm.2.weight", kNormOfThirdPart, kNormOfEach),
    kNorm,
    draft::if_stored(last("lm_head.weight", kDraftHeadPart)),
};

constexpr StoredName kNames[] = {{"model.layers.0.", "midlayer."}, {"model.", ""}};

// t2d is the inverse of d2t; mask_hidden is for parallel drafting, which is not served.
constexpr std::string_view kIgnored[] = {"t2d", "mask_hidden", "*rotary_emb.inv_freq"};

}  // namespace

extern const Family llama_eagle3{
    .architecture = "Eagle3LlamaForCausalLM",
    .layer_prefix = kLayerPrefix,
    .rules = kRules,
    .ignored = kIgnored,
    .draft = {.layers = draft::all_layers, .names = kNames, .joins = true}};

}  // namespace preload::families
