// SPDX-License-Identifier: Apache-2.0
#include "load/convert_rows.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/error.hpp"
#include "load/float_convert.hpp"

namespace preload {

namespace {

template <class From, class To>
void convert_row(const std::byte* source, std::byte* target, std::uint64_t elements) {
  for (std::uint64_t i = 0; i < elements; ++i) {
    typename From::Bits bits;
    std::memcpy(&bits, source + i * sizeof bits, sizeof bits);
    const typename To::Bits converted = convert_float<From, To>(bits);
    std::memcpy(target + i * sizeof converted, &converted, sizeof converted);
  }
}

[[noreturn]] void refuse(DType dtype) {
  throw Error(Errc::kInternal,
              fmt::format("{} is no type that values are converted from or to", dtype_name(dtype)));
}

using RowFunction = void (*)(const std::byte*, std::byte*, std::uint64_t);

template <class From>
RowFunction row_function_from(DType to) {
  switch (to) {
    case DType::kF16:
      return convert_row<From, F16Format>;
    case DType::kBF16:
      return convert_row<From, BF16Format>;
    case DType::kF32:
      return convert_row<From, F32Format>;
    case DType::kF64:
      return convert_row<From, F64Format>;
    default:
      refuse(to);
  }
}

RowFunction row_function(DType from, DType to) {
  switch (from) {
    case DType::kF16:
      return row_function_from<F16Format>(to);
    case DType::kBF16:
      return row_function_from<BF16Format>(to);
    case DType::kF32:
      return row_function_from<F32Format>(to);
    case DType::kF64:
      return row_function_from<F64Format>(to);
    default:
      refuse(from);
  }
}

}  // namespace

void convert_rows(const RowConversion& rows, DType from, DType to) {
  const RowFunction convert = row_function(from, to);
  for (std::uint64_t row = 0; row < rows.rows; ++row) {
    convert(rows.source + row * rows.source_stride, rows.target + row * rows.target_stride,
            rows.row_elements);
  }
}

}  // namespace preload
