// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "model/layout.hpp"

namespace preload {

// The one type that the vllm layout holds its floats in: --dtype, else what vLLM makes of auto
// (vllm/config/model.py, _find_dtype and _resolve_auto_dtype, on devices that have bfloat16): the
// config's type, else the one that holds all stored types, where float32 becomes bfloat16.
DType engine_dtype(const Checkpoint& checkpoint, const ModelSpec& spec,
                   const std::optional<DType>& requested);

// The one type that the transformers layout holds its floats in: --dtype, else what transformers 5
// makes of dtype="auto" (modeling_utils.py, _get_dtype): the config's type, else that of the first
// float of the first file, in the order of the names.
DType transformers_dtype(const Checkpoint& checkpoint, const ModelSpec& spec,
                         const std::optional<DType>& requested);

// The type a tensor has in the hf layout: as stored, unless --dtype casts a wide float.
DType stored_or_cast(DType stored, const std::optional<DType>& requested) noexcept;

}  // namespace preload
