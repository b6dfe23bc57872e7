// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "model/copy_program.hpp"
#include "plan/shards.hpp"

namespace preload {

struct ModelSpec;

// A model family as data: which stored tensors make which of the engine's tensors, and how the
// ranks share each. All layouts follow from the same rules.

// The size of a tensor's axis by what the config says; how a message explains it.
struct Extent {
  std::string_view text;
  std::int64_t (*of)(const ModelSpec&) = nullptr;  // nullptr: there is no such axis
};

// How the tensor-parallel ranks share a tensor. All but kColumns cut the first axis. Experts are
// shared by the ranks that hold the same experts.
enum class Split : std::uint8_t {
  kReplicated,
  kRows,        // equal parts
  kColumns,     // equal parts of the second axis
  kVocabRows,   // padded, then equal parts; not for tensors of a layer
  kQueryHeads,  // whole heads
  kKvHeads,     // whole heads, replicas where there are fewer heads than ranks
  kFirstRank,   // whole on the first rank, zeros on the others: what all ranks add up
};

// Where in the model a rule's tensors lie, which decides the pipeline stage.
enum class Scope : std::uint8_t { kFirstStage, kLayer, kLastStage };

// The layers that have the tensor, where a model has two kinds: without experts and with, or the
// first of a draft, which joins two inputs, and those behind it.
enum class Layers : std::uint8_t { kAll, kDense, kSparse, kFirst, kLater };

// Whether a config has the tensor; nullptr: always.
using Presence = bool (*)(const ModelSpec&);

// What a rule takes of one stored tensor. Parts of the same name that follow each other in a rule
// follow each other in the stored tensor too.
struct Part {
  // Within the layer, or the whole name outside of layers. Of an expert's tensor '*' stands for its
  // number; without it all experts are in one tensor, along its first axis.
  std::string_view stored;
  Split split = Split::kReplicated;
  Extent rows = {};         // of the engine's tensor
  Extent columns = {};      // without: the tensor has one axis
  bool transposed = false;  // stored with columns first
};

// What a rule's tensor belongs to, which decides the ranks that share it.
enum class Share : std::uint8_t {
  kModel,         // tensor-parallel ranks
  kExperts,       // one slice an expert along a further first axis, of the experts a rank holds
  kSharedExpert,  // as kModel, but whole on every rank under sequence-parallel MoE
};

// How transformers' model holds what a rule takes, after from_pretrained.
struct InTransformers {
  // Of all parts, and all experts, in one tensor; empty: each stored tensor under its own name.
  std::string_view name = {};
  Presence presence = nullptr;  // instead of the rule's
  TensorKind kind = TensorKind::kParam;
};

// One of the engine's tensors: its parts one after the other along the first axis that is not the
// experts'; or another name of one.
struct Rule {
  Scope scope = Scope::kLayer;
  // The engine's name, as `stored` within the layer. Empty: vLLM has no such tensor and takes
  // nothing of what is stored; transformers does.
  std::string_view target = {};
  std::span<const Part> parts = {};
  Presence presence = nullptr;
  // With tie_word_embeddings this is another name of that target of the first stage.
  std::string_view tied_to = {};
  Layers layers = Layers::kAll;
  Share share = Share::kModel;
  std::optional<DType> dtype = {};  // whatever --dtype says
  std::string_view alias_of = {};   // another name of that target of the same layer; no parts
  TensorKind kind = TensorKind::kParam;
  // Left out where the checkpoint lacks it: of a draft the engine then takes the target's.
  bool if_stored = false;
  bool outside_block = false;  // see Draft::block
  InTransformers transformers = {};
};

// What a family with experts adds.
struct Experts {
  bool (*sparse)(const ModelSpec&, std::int64_t layer) = nullptr;  // whether the layer has experts
  // Config field of the number of expert groups, on which round-robin placement depends; empty:
  // the engine is told of none.
  std::string_view groups = {};
  bool even = false;           // the engine's loader wants the same number of experts on every rank
  bool one_a_rank = false;     // the engine refuses more tensor-parallel ranks than experts
  bool divides_world = false;  // it wants intermediate_size to divide by all ranks of the job
};

// How a draft's checkpoint calls what its rules call something beginning with `name`. '#' is the
// number of its first layer.
struct StoredName {
  std::string_view name;
  std::string_view stored;
};

// What a family of draft models adds.
struct Draft {
  // Its layers, by their numbers in the engine; nullptr: this is no draft.
  Interval (*layers)(const ModelSpec&) = nullptr;
  std::span<const StoredName> names = {};  // the first that is stored counts
  bool joins = false;                      // its layers are kFirst and kLater
  bool in_target = false;       // it lies in its target's checkpoint, whose other tensors it lacks
  std::string_view block = {};  // before the engine's names of a layer, as "mtp_block."
};

// What stands in a tensor's name for "model." and "lm_head.", with which rules are written.
struct NamePrefixes {
  std::string_view model = "model.";
  std::string_view head = "lm_head.";
};

// Other parts of a multimodal model: the prefix of their stored names, and transformers' for it.
struct OtherPart {
  std::string_view stored;
  std::string_view transformers;
};

// What a multimodal model adds, whose language model the rules are of. Its other parts are served
// whole, as they are stored.
struct Multimodal {
  std::span<const NamePrefixes> stored = {};  // as checkpoints have it, one of these; empty: none
  NamePrefixes vllm = {};
  NamePrefixes transformers = {};
  std::span<const OtherPart> others = {};  // a longer prefix before a shorter one
};

// What a config that leaves the field out means, where it is not 0 or false.
struct ConfigDefault {
  std::string_view field;
  std::variant<bool, std::int64_t> value;
};

struct Family {
  std::string_view architecture;              // as config.json's "architectures" says
  std::string_view layer_prefix;              // "model.layers.", then the number, then "."
  std::span<const Rule> rules;                // in the engine's order within each scope
  std::span<const std::string_view> ignored;  // globs of stored tensors that the engine skips too
  Experts experts = {};
  // The engine builds what lies before and behind the layers on every pipeline stage.
  bool ends_on_every_stage = false;
  // The module within a layer that holds the KV cache's scales when weights are quantised.
  std::string_view attention = "self_attn.attn";
  // Config field of the number of layers behind the last that only a draft model uses.
  std::string_view draft_layers = {};
  Draft draft = {};

  std::span<const ConfigDefault> defaults = {};
  Multimodal multimodal = {};
  // Tensors whose names contain this are float32 in a float16 model of transformers (its
  // _keep_in_fp32_modules).
  std::string_view float32_in_float16 = {};

  bool is_draft() const noexcept { return draft.layers != nullptr; }
};

// The family of an architecture; nullptr when there are no rules for it.
const Family* find_family(std::string_view architecture) noexcept;
// All of them, in the order of their files' names. Made by CMake from src/model/families/*.cpp.
std::span<const Family* const> all_families() noexcept;

}  // namespace preload
