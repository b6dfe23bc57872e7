// SPDX-License-Identifier: Apache-2.0
#include "plan/served_rows.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"

namespace preload {
namespace {

// Which memory byte each row-major byte lies at, from the stretches.
std::map<std::uint64_t, std::uint64_t> byte_map(const TargetTensor& tensor) {
  std::map<std::uint64_t, std::uint64_t> map;
  for_each_served_rows(tensor, [&](const ServedRows& rows) {
    for (std::uint64_t r = 0; r < rows.rows; ++r) {
      for (std::uint64_t b = 0; b < rows.row_bytes; ++b) {
        const auto [at, fresh] = map.emplace(rows.index_offset + r * rows.index_stride + b,
                                             rows.memory_offset + r * rows.memory_stride + b);
        EXPECT_TRUE(fresh) << "byte " << at->first << " comes twice";
      }
    }
  });
  return map;
}

TargetTensor tensor(DType dtype, Dims shape, Dims strides) {
  TargetTensor tensor;
  tensor.name = "t";
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = strides;
  return tensor;
}

TEST(ServedRows, CoverEveryElementOfAnyStridesOnce) {
  const Dims shape = {3, 1, 4, 5};
  for (const Dims& strides : {Dims{20, 20, 5, 1}, Dims{1, 3, 3, 12}, Dims{20, 7, 1, 4},
                              Dims{5, 1, 15, 1}, Dims{64, 64, 8, 1}}) {
    const auto map = byte_map(tensor(DType::kF32, shape, strides));
    ASSERT_EQ(map.size(), 3U * 4 * 5 * 4);
    for (std::uint64_t i = 0; i < 60; ++i) {
      const auto index = static_cast<std::int64_t>(i);
      const auto at = static_cast<std::uint64_t>(
          index / 20 * strides[0] + index / 5 % 4 * strides[2] + index % 5 * strides[3]);
      for (std::uint64_t b = 0; b < 4; ++b) ASSERT_EQ(map.at(i * 4 + b), at * 4 + b);
    }
  }
}

TEST(ServedRows, AreNoneForATensorWithoutElements) {
  EXPECT_TRUE(byte_map(tensor(DType::kF32, {3, 0}, {0, 1})).empty());
}

TEST(ServedRows, PackTypesSmallerThanAByte) {
  EXPECT_EQ(byte_map(tensor(DType::kF4, {3, 5}, {5, 1})).size(), 8U);
}

TEST(FillWord, RepeatsTheElement) {
  const auto of = [](DType dtype, std::uint64_t bits) {
    return fill_word(bits, tensor(dtype, {4}, {1}));
  };
  EXPECT_EQ(of(DType::kF4, 0x2), 0x2222222222222222U);
  EXPECT_EQ(of(DType::kU8, 0xab), 0xababababababababU);
  EXPECT_EQ(of(DType::kBF16, 0x3f80), 0x3f803f803f803f80U);
  EXPECT_EQ(of(DType::kF32, 0xbf800000), 0xbf800000bf800000U);
  EXPECT_EQ(of(DType::kF64, 0x3ff0000000000000), 0x3ff0000000000000U);
  EXPECT_EQ(of(DType::kF6E2M3, 0), 0U);
  EXPECT_THROW(of(DType::kF6E2M3, 1), Error);
}

}  // namespace
}  // namespace preload
