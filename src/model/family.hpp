// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace preload {

// A model family as data: which stored tensors make which of the engine's tensors, and how tensor-
// parallel ranks share each. Both layouts follow from the same rules.

// Sizes of a stored tensor's axes, by what the config calls them.
enum class Extent : std::uint8_t {
  kOne,  // no such axis
  kHidden,
  kIntermediate,
  kVocab,
  kHeadDim,
  kQuery,     // num_attention_heads * head_dim
  kKeyValue,  // num_key_value_heads * head_dim
};

// How the ranks share a stored tensor. All but kColumns cut its first axis.
enum class Split : std::uint8_t {
  kReplicated,
  kRows,        // equal parts
  kColumns,     // equal parts of the second axis
  kVocabRows,   // padded, then equal parts; not for tensors of a layer
  kQueryHeads,  // whole heads
  kKvHeads,     // whole heads, replicas where there are fewer heads than ranks
};

// Where in the model a rule's tensors lie, which decides the pipeline stage.
enum class Scope : std::uint8_t { kFirstStage, kLayer, kLastStage };

// Which configs have the tensor at all.
enum class Presence : std::uint8_t { kAlways, kQkvBias, kAttentionBias, kMlpBias };

// One stored tensor of a rule.
struct Part {
  std::string_view stored;  // within the layer, or the whole name outside of layers
  Split split = Split::kReplicated;
  Extent rows = Extent::kOne;
  Extent columns = Extent::kOne;  // kOne: the tensor has one axis
};

// One of the engine's tensors: its parts one after the other along the first axis.
struct Rule {
  Scope scope = Scope::kLayer;
  std::string_view target;  // the engine's name, as `stored` within the layer
  std::span<const Part> parts;
  Presence presence = Presence::kAlways;
  // With tie_word_embeddings this is another name of that target of the first stage.
  std::string_view tied_to = {};
  // Why the engine refuses it on more than one tensor-parallel rank; empty when it does not.
  std::string_view tp_refusal = {};
};

struct Family {
  std::string_view architecture;              // as config.json's "architectures" says
  std::string_view layer_prefix;              // "model.layers.", then the number, then "."
  std::span<const Rule> rules;                // in the engine's order within each scope
  std::span<const std::string_view> ignored;  // globs of stored tensors that the engine skips too
};

// The family of an architecture; nullptr when there are no rules for it.
const Family* find_family(std::string_view architecture) noexcept;
// All of them, in the order of their files' names. Made by CMake from src/model/families/*.cpp.
std::span<const Family* const> all_families() noexcept;

}  // namespace preload
