// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace preload {

// Element types by safetensors' names.
enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
  kC64,
  kF4,
  kF6E2M3,
  kF6E3M2,
};

std::string_view dtype_name(DType dtype) noexcept;  // "BF16"
std::optional<DType> dtype_from_name(std::string_view name) noexcept;
unsigned dtype_bits(DType dtype) noexcept;        // per element
constexpr bool is_wide_float(DType d) noexcept {  // what --dtype may cast
  return d == DType::kF16 || d == DType::kBF16 || d == DType::kF32 || d == DType::kF64;
}

}  // namespace preload
