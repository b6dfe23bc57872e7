// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace preload {

enum class Role : std::uint8_t { kTarget, kDraft };
enum class TensorKind : std::uint8_t { kParam, kBuffer };
enum class TensorClass : std::uint8_t { kShared, kPrivate };  // private: each client copies it
// bits: reinterpretation, the bytes stay (U8 as F8_E8M0); value: round to nearest even.
enum class Conversion : std::uint8_t { kNone, kBits, kValue };

std::string_view role_name(Role role) noexcept;  // "target", "draft"

// Copies a strided box of one source tensor into a strided box of one target. All in elements;
// source and target have the same element size unless the conversion is kValue.
struct Move {
  std::uint32_t source = 0;  // index in Checkpoint::tensors
  Dims sizes;
  std::int64_t source_offset = 0;
  Dims source_strides;
  std::int64_t target_offset = 0;
  Dims target_strides;
  Conversion conversion = Conversion::kNone;
  friend bool operator==(const Move&, const Move&) = default;
};

// One tensor that is served. Exactly one of: moves (with fill where none reaches), a constant
// (fill and no moves), an alias.
struct TargetTensor {
  std::string name;
  DType dtype = DType::kBF16;
  Dims shape;
  Dims strides;  // elements; row-major unless the engine holds it otherwise
  TensorKind kind = TensorKind::kParam;
  TensorClass cls = TensorClass::kShared;
  std::vector<Move> moves;             // targets never overlap
  std::optional<double> fill;          // value of every element that no move reaches
  std::optional<std::uint32_t> alias;  // index of an earlier or later tensor that is no alias
  friend bool operator==(const TargetTensor&, const TargetTensor&) = default;
};

struct LeftAlone {
  std::uint32_t source = 0;
  std::string reason;
  friend bool operator==(const LeftAlone&, const LeftAlone&) = default;
};

// What one rank holds for one role, as a value: the whole of what planning, reading, hashing,
// verifying and resharding know of a model.
struct CopyProgram {
  Role role = Role::kTarget;
  std::string layout;  // "vllm", "hf"
  int layout_version = 1;
  std::string attributes_json = "{}";  // model attributes for clients, canonical JSON
  std::vector<TargetTensor> tensors;   // in layer order
  std::vector<LeftAlone> left_alone;
  friend bool operator==(const CopyProgram&, const CopyProgram&) = default;
};

// Throws Error(kInternal) naming the tensor when a move leaves its source or target, when moves of
// a target overlap, when something is filled twice or not at all, or when an alias is no whole.
void check_program(const CopyProgram& program, const Checkpoint& checkpoint);

}  // namespace preload
