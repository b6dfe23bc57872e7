// SPDX-License-Identifier: Apache-2.0
#include "cli/cast.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/error.hpp"
#include "load/float_convert.hpp"

namespace preload::cli {
namespace {

template <class From, class To>
void cast(std::span<const std::byte> in, std::span<std::byte> out) {
  const std::size_t count = in.size() / sizeof(typename From::Bits);
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Bits from;
    std::memcpy(&from, &in[i * sizeof(from)], sizeof(from));
    const typename To::Bits to = convert_float<From, To>(from);
    std::memcpy(&out[i * sizeof(to)], &to, sizeof(to));
  }
}

// Calls `use` with the format of `dtype`.
template <class Use>
void with_format(DType dtype, Use use) {
  switch (dtype) {
    case DType::kF16:
      return use(F16Format{});
    case DType::kBF16:
      return use(BF16Format{});
    case DType::kF32:
      return use(F32Format{});
    case DType::kF64:
      return use(F64Format{});
    default:
      throw Error(Errc::kInternal, fmt::format("{} is no wide float", dtype_name(dtype)));
  }
}

}  // namespace

void cast_floats(std::span<const std::byte> in, DType from, DType to, std::span<std::byte> out) {
  with_format(from, [&]<class From>(From) {
    with_format(to, [&]<class To>(To) { cast<From, To>(in, out); });
  });
}

}  // namespace preload::cli
