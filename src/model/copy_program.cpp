// SPDX-License-Identifier: Apache-2.0
#include "model/copy_program.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "model/extent.hpp"
#include "model/target_cover.hpp"

namespace preload {
namespace {

[[noreturn]] void refuse(const TargetTensor& tensor, std::string_view what) {
  throw Error(Errc::kInternal, fmt::format("copy program: {}: {}", tensor.name, what));
}

void check_move(const TargetTensor& tensor, const Move& move, const Checkpoint& checkpoint) {
  if (move.source >= checkpoint.tensors.size()) refuse(tensor, "a move names no source tensor");
  const SourceTensor& source = checkpoint.tensors[move.source];
  const std::size_t rank = move.sizes.size();
  if (move.source_strides.size() != rank || move.target_strides.size() != rank) {
    refuse(tensor, "a move has strides of another number of axes than its sizes");
  }
  bool negative = move.source_offset < 0 || move.target_offset < 0;
  for (std::size_t i = 0; i < rank; ++i) {
    negative =
        negative || move.sizes[i] < 0 || move.source_strides[i] < 0 || move.target_strides[i] < 0;
  }
  if (negative) refuse(tensor, "a move has a negative offset, size or stride");
  if (element_count(move.sizes) == 0) return;
  if (move.source_offset + extent_elements(move.sizes, move.source_strides) >
      element_count(source.shape)) {
    refuse(tensor,
           fmt::format("a move leaves its source {} {}", source.name, to_string(source.shape)));
  }
  if (move.target_offset + extent_elements(move.sizes, move.target_strides) >
      extent_elements(tensor.shape, tensor.strides)) {
    refuse(tensor, fmt::format("a move from {} leaves the target {}", source.name,
                               to_string(tensor.shape)));
  }
  switch (move.conversion) {
    case Conversion::kNone:
      if (source.dtype != tensor.dtype) refuse(tensor, "a plain move between different types");
      break;
    case Conversion::kBits:
      if (dtype_bits(source.dtype) != dtype_bits(tensor.dtype)) {
        refuse(tensor, "a reinterpreting move between types of different size");
      }
      break;
    case Conversion::kValue:
      if (!is_wide_float(source.dtype) || !is_wide_float(tensor.dtype)) {
        refuse(tensor, "a value conversion of a type that is no wide float");
      }
      break;
  }
}

void check_alias(const CopyProgram& program, const TargetTensor& tensor) {
  if (*tensor.alias >= program.tensors.size()) refuse(tensor, "an alias of no tensor");
  const TargetTensor& whole = program.tensors[*tensor.alias];
  if (whole.alias) refuse(tensor, "an alias of an alias");
  if (!tensor.moves.empty() || tensor.fill) refuse(tensor, "an alias with contents of its own");
  if (tensor.dtype != whole.dtype || tensor.shape != whole.shape ||
      tensor.strides != whole.strides || tensor.cls != whole.cls) {
    refuse(tensor, fmt::format("not the whole of {}, which it is an alias of", whole.name));
  }
}

}  // namespace

std::string_view role_name(Role role) noexcept {
  return role == Role::kTarget ? "target" : "draft";
}

void check_program(const CopyProgram& program, const Checkpoint& checkpoint) {
  for (const TargetTensor& tensor : program.tensors) {
    if (tensor.strides.size() != tensor.shape.size()) {
      refuse(tensor, "strides of another number of axes than its shape");
    }
    if (tensor.alias) {
      check_alias(program, tensor);
      continue;
    }
    for (const Move& move : tensor.moves) check_move(tensor, move, checkpoint);
    switch (target_cover(tensor)) {
      case TargetCover::kOverlap:
        refuse(tensor, "two moves write the same element");
      case TargetCover::kOutside:
        refuse(tensor, "a move writes between the tensor's elements");
      case TargetCover::kPart:
        if (!tensor.fill) refuse(tensor, "no move and no fill reaches every element");
        break;
      case TargetCover::kWhole:
        if (tensor.fill && element_count(tensor.shape) > 0) {
          refuse(tensor, "a fill where moves reach every element");
        }
        break;
    }
  }
  for (const LeftAlone& left : program.left_alone) {
    if (left.source >= checkpoint.tensors.size()) {
      throw Error(Errc::kInternal, "copy program: a tensor that is left alone is not there");
    }
  }
}

}  // namespace preload
