// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "gpu/gpu_test.hpp"
#include "load/convert_rows.hpp"
#include "place_rows.hpp"

namespace preload::test {
namespace {

constexpr std::array<std::pair<DType, kernels::Float>, 4> kKinds = {{
    {DType::kF16, kernels::Float::kF16},
    {DType::kBF16, kernels::Float::kBF16},
    {DType::kF32, kernels::Float::kF32},
    {DType::kF64, kernels::Float::kF64},
}};

// All patterns of a 16-bit type; random ones of the wider types.
std::string patterns(DType dtype) {
  if (dtype_bits(dtype) > 16) return random_bytes(dtype_bits(dtype), 65536 * dtype_bits(dtype) / 8);
  std::string bytes;
  for (unsigned i = 0; i < 65536; ++i) {
    bytes += static_cast<char>(i);
    bytes += static_cast<char>(i >> 8);
  }
  return bytes;
}

class ConvertRowsOnGpu : public GpuTest {};

TEST_F(ConvertRowsOnGpu, GiveTheHostsBitsForEveryPair) {
  constexpr std::uint64_t kRows = 256;
  constexpr std::uint64_t kColumns = 256;
  for (const auto& [from, from_kind] : kKinds) {
    for (const auto& [to, to_kind] : kKinds) {
      const std::string bytes = patterns(from);
      const std::uint64_t from_stride = kColumns * dtype_bits(from) / 8;
      const std::uint64_t to_stride =
          (kColumns + 3) * dtype_bits(to) / 8;  // rows with room between
      std::string expected(kRows * to_stride, '\x77');
      convert_rows({reinterpret_cast<const std::byte*>(bytes.data()), from_stride,
                    reinterpret_cast<std::byte*>(expected.data()), to_stride, kRows, kColumns},
                   from, to);
      const OnDevice source(bytes);
      const OnDevice target(std::string(expected.size(), '\x77'));
      ASSERT_EQ(kernels::convert_rows({source.data(), from_stride, target.data(), to_stride, kRows},
                                      kColumns, from_kind, to_kind, nullptr),
                0);
      EXPECT_TRUE(target.read() == expected) << dtype_name(from) << " to " << dtype_name(to);
    }
  }
}

}  // namespace
}  // namespace preload::test
