// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dtype.hpp"

#include <array>
#include <cstddef>

namespace preload {

namespace {

struct DTypeInfo {
  std::string_view name;
  unsigned bits;
};

// In the order of the enumeration.
constexpr std::array<DTypeInfo, 22> kDTypes{{
    {"BOOL", 8},    {"U8", 8},          {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},
    {"F16", 16},    {"BF16", 16},       {"I32", 32},        {"U32", 32},    {"F32", 32},
    {"F64", 64},    {"I64", 64},        {"U64", 64},        {"C64", 64},    {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};
static_assert(static_cast<std::size_t>(DType::kF6E3M2) + 1 == kDTypes.size());

}  // namespace

std::string_view dtype_name(DType dtype) noexcept {
  return kDTypes[static_cast<std::size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

unsigned dtype_bits(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].bits; }

}  // namespace preload
