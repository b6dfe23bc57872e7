// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>

#include "model/deepseek_rules.hpp"
#include "model/draft_rules.hpp"

namespace preload::families {
namespace {

constexpr Extent kTwoHidden{"2 * hidden_size",
                            [](const ModelSpec& s) { return 2 * s.hidden_size; }};
constexpr Part kEmbeddingNormPart[] = {{"enorm.weight", Split::kReplicated, extent::kHidden}};
constexpr Part kHiddenNormPart[] = {{"hnorm.weight", Split::kReplicated, extent::kHidden}};
constexpr Part kJoinPart[] = {{"eh_proj.weight", Split::kReplicated, extent::kHidden, kTwoHidden}};
constexpr Part kHeadNormPart[] = {{"shared_head.norm.weight", Split::kReplicated, extent::kHidden}};
constexpr Part kHeadPart[] = {
    {"shared_head.head.weight", Split::kVocabRows, extent::kVocab, extent::kHidden}};

constexpr Rule around(std::string_view target, std::span<const Part> parts) {
  Rule rule{.target = target, .parts = parts};
  rule.outside_block = true;
  return rule;
}

constexpr Rule kEmbedding{.scope = Scope::kLastStage,
                          .target = "model.embed_tokens.weight",
                          .parts = decoder::kEmbeddingPart};

// vLLM 0.32 model_executor/models/deepseek_mtp.py: a layer of DeepSeek-V3 (mtp_block) behind a
// projection of embedding and hidden state. One embedding for all layers: the first one's, or the
// target's where that has none. A head that is not stored is the target's.
constexpr auto make_rules() {
  constexpr auto kBlockRules =
      static_cast<std::size_t>(std::ranges::count(deepseek::kRules, Scope::kLayer, &Rule::scope));
  std::array<Rule, kBlockRules + 6> rules{
      around("enorm.weight", kEmbeddingNormPart),
      around("hnorm.weight", kHiddenNormPart),
      around("eh_proj.weight", kJoinPart),
      around("shared_head.norm.weight", kHeadNormPart),
      draft::if_stored(around("shared_head.head.weight", kHeadPart)),
      kEmbedding};
  std::ranges::copy_if(
      deepseek::kRules, rules.begin() + 6, [](Scope scope) { return scope == Scope::kLayer; },
      &Rule::scope);
  return rules;
}
constexpr auto kRules = make_rules();

constexpr StoredName kNames[] = {{"model.embed_tokens.", "model.layers.#.embed_tokens."},
                                 {"model.embed_tokens.", "model.embed_tokens."}};

Interval layers(const ModelSpec& spec) {
  return {spec.num_hidden_layers, spec.config.number("num_nextn_predict_layers")};
}

}  // namespace

extern const Family deepseek_mtp{
    .architecture = "DeepSeekMTPModel",
    .layer_prefix = decoder::kLayerPrefix,
    .rules = kRules,
    .ignored = decoder::kRotaryTables,
    .experts = deepseek::kExperts,
    .attention = "",
    .draft = {.layers = layers, .names = kNames, .in_target = true, .block = "mtp_block."}};

}  // namespace preload::families
