// SPDX-License-Identifier: Apache-2.0
#include "fill.hpp"

#include "gpu/gpu_test.hpp"
#include "place_rows.hpp"

namespace preload::test {
namespace {

class FillKernel : public GpuTest {};

TEST_F(FillKernel, RepeatsThePatternAndStopsAtTheLastByte) {
  const std::string pattern = "\x01\x23\x45\x67\x89\xab\xcd\xef";
  for (const std::uint64_t bytes :
       std::initializer_list<std::uint64_t>{1, 7, 8, 9, 2047, 2048, 20 * kMiB + 3}) {
    const OnDevice memory(std::string(bytes + 8, '\x77'));
    ASSERT_EQ(kernels::fill_pattern(memory.data(), bytes, 0xefcdab8967452301, nullptr), 0);
    std::string expected;
    while (expected.size() < bytes) expected += pattern;
    expected.resize(bytes);
    expected.append(8, '\x77');
    EXPECT_TRUE(memory.read() == expected) << bytes;
  }
}

TEST_F(FillKernel, WritesZeros) {
  const OnDevice memory(std::string(100, '\x77'));
  ASSERT_EQ(kernels::fill_pattern(memory.data(), 50, 0, nullptr), 0);
  EXPECT_EQ(memory.read(), std::string(50, '\0') + std::string(50, '\x77'));
}

class CopyRows : public GpuTest {};

TEST_F(CopyRows, KeepsEveryUnitsWidthAndWhatLiesBetweenRows) {
  for (const std::uint64_t width : {1, 2, 3, 4, 6, 8, 12, 16, 48, 1000}) {
    for (const std::uint64_t gap : {0, 1, 2, 8, 16}) {
      constexpr std::uint64_t kRows = 37;
      const std::string bytes = random_bytes(width, kRows * width);
      const OnDevice source(bytes);
      const OnDevice target(std::string(kRows * (width + gap), '\x77'));
      ASSERT_EQ(kernels::copy_rows({source.data(), width, target.data(), width + gap, kRows}, width,
                                   nullptr),
                0);
      std::string expected;
      for (std::uint64_t row = 0; row < kRows; ++row) {
        expected += bytes.substr(row * width, width) + std::string(gap, '\x77');
      }
      EXPECT_TRUE(target.read() == expected) << width << " " << gap;
    }
  }
}

}  // namespace
}  // namespace preload::test
