// SPDX-License-Identifier: Apache-2.0
#include "model/target_dtype.hpp"

#include <tuple>

namespace preload {
namespace {

// The float type that torch promotes all stored floats to; nothing when none is stored.
std::optional<DType> common_stored(const Checkpoint& checkpoint) {
  std::optional<DType> common;
  for (const SourceTensor& tensor : checkpoint.tensors) {
    if (!is_wide_float(tensor.dtype) || common == tensor.dtype) continue;
    if (!common) {
      common = tensor.dtype;
    } else if (tensor.dtype == DType::kF64 || common == DType::kF64) {
      common = DType::kF64;
    } else {
      common = DType::kF32;  // float16 and bfloat16 meet in float32
    }
  }
  return common;
}

}  // namespace

DType engine_dtype(const Checkpoint& checkpoint, const ModelSpec& spec,
                   const std::optional<DType>& requested) {
  if (requested) return *requested;
  std::optional<DType> found = spec.dtype;
  if (!found) found = common_stored(checkpoint);
  const bool half = found == DType::kF16 || found == DType::kBF16;
  return half ? *found : DType::kBF16;
}

DType transformers_dtype(const Checkpoint& checkpoint, const ModelSpec& spec,
                         const std::optional<DType>& requested) {
  if (requested) return *requested;
  if (spec.dtype) return *spec.dtype;
  const SourceTensor* first = nullptr;
  const auto key = [&](const SourceTensor& tensor) {
    return std::tie(checkpoint.files[tensor.file].name, tensor.name);
  };
  for (const SourceTensor& tensor : checkpoint.tensors) {
    if (!is_wide_float(tensor.dtype)) continue;
    if (first == nullptr || key(tensor) < key(*first)) first = &tensor;
  }
  return first != nullptr ? first->dtype : DType::kF32;
}

DType stored_or_cast(DType stored, const std::optional<DType>& requested) noexcept {
  return requested && is_wide_float(stored) ? *requested : stored;
}

}  // namespace preload
