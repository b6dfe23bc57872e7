// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "model/family.hpp"
#include "model/model_spec.hpp"

namespace preload {

// A part with the config's numbers.
struct LayoutPart {
  std::string stored;
  Split split = Split::kReplicated;
  std::string row_text;     // "num_attention_heads * head_dim": how a message explains a size
  std::string column_text;  // empty: one axis
  std::int64_t rows = 1;    // of the engine's tensor, on all ranks together
  std::int64_t columns = 1;
  // Of a scale: how many of the weight's rows and columns share one, and so an element of its own.
  // What is below counts in these.
  std::int64_t row_block = 1;
  std::int64_t column_block = 1;
  // Of the weight: ranks share whole units, the last ones fewer or none where they do not divide;
  // 1: equal parts. A rank's share is padded to a multiple.
  std::int64_t row_unit = 1;
  std::int64_t column_unit = 1;
  std::int64_t row_padding = 1;
  std::int64_t column_padding = 1;
  std::int64_t group = 0;      // the stored tensor has columns in so many, as a further axis; 0: no
  std::int64_t first_row = 0;  // where these rows begin in the stored tensor
  std::int64_t stored_rows = 1;  // of the whole stored tensor
  bool transposed = false;
  std::optional<DType> exact;  // stored like this or not at all, as integers are
  bool scalar = false;         // stored as a scalar or as a single element
  bool per_expert = false;     // one stored tensor an expert
  std::int64_t experts = 0;   // along the first axis of the stored tensor; 0: there is no such axis
  std::optional<Dims> whole;  // the stored tensor as it is, whatever its axes

  bool one_axis() const noexcept { return column_text.empty(); }
  std::int64_t own_rows() const noexcept { return (rows + row_block - 1) / row_block; }
  std::int64_t own_columns() const noexcept { return (columns + column_block - 1) / column_block; }
  friend bool operator==(const LayoutPart&, const LayoutPart&) = default;
};

enum class Content : std::uint8_t {
  kFloats,     // cast to the layout's type
  kQuantised,  // 8-bit floats, kept as they are
  kScale,      // of quantised weights: float32 for the engine
};

// A rule that a config has, for one layout.
struct LayoutRule {
  std::string target;  // with '*' for the expert's number: a tensor an expert
  std::vector<LayoutPart> parts;
  Share share = Share::kModel;
  Content content = Content::kFloats;
  bool as_stored = false;  // axes in the stored order
  std::optional<DType> dtype;
  std::optional<double> constant;
  bool constant_vector = false;  // one element along an axis, not a scalar
  bool engine_writes =
      false;  // each engine takes a copy; has the shape of the constant it replaces
  std::string alias_of;
  std::string tied_to;
  TensorKind kind = TensorKind::kParam;
  bool if_stored = false;

  bool per_expert() const noexcept { return target.find('*') != std::string::npos; }
  friend bool operator==(const LayoutRule&, const LayoutRule&) = default;
};

// Whose tensors a layout consists of.
enum class RuleStyle : std::uint8_t {
  kEngine,        // vLLM's: the rules' targets
  kAsStored,      // the stored tensors that the rules take something of
  kTransformers,  // those of transformers' model, never cut or padded
};

// The rules of one scope and one kind of layer that the config has. `stored` is how the checkpoint
// calls what multimodal models have in several ways.
std::vector<LayoutRule> layout_rules(const Family& family, const ModelSpec& spec, Scope scope,
                                     Layers layers, RuleStyle style, const NamePrefixes& stored);

// How the names of a layout begin.
NamePrefixes target_prefixes(const Family& family, RuleStyle style, const NamePrefixes& stored);
// A name as rules are written, with these prefixes.
std::string with_prefixes(std::string_view name, const NamePrefixes& prefixes);

// A rule for a tensor that is served as it is stored.
LayoutRule whole_rule(const SourceTensor& tensor, std::string target);

// Parts of one name that follow each other take consecutive rows of one stored tensor.
void place_rows(std::vector<LayoutPart>& parts);

// Shape of the stored tensor as the config states it, and how a message explains it.
Dims stored_shape(const LayoutPart& part);
std::string stored_shape_text(const LayoutPart& part);

}  // namespace preload
