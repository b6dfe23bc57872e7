// SPDX-License-Identifier: Apache-2.0
#include "plan/slab_layout.hpp"

#include <gtest/gtest.h>

namespace preload::test {
namespace {

TargetTensor tensor(std::int64_t elements, TensorClass cls = TensorClass::kShared) {
  TargetTensor out;
  out.dtype = DType::kU8;
  out.shape = {elements};
  out.strides = {1};
  out.cls = cls;
  return out;
}

CopyProgram program(std::vector<TargetTensor> tensors) {
  CopyProgram out;
  out.tensors = std::move(tensors);
  return out;
}

TEST(SlabLayout, PacksInOrderAtMultiplesOf512) {
  const SlabLayout layout = lay_out(program({tensor(1), tensor(513), tensor(512)}));
  EXPECT_EQ(layout.placements, (std::vector<Placement>{{0, 0, 1}, {0, 512, 513}, {0, 1536, 512}}));
  EXPECT_EQ(layout.slabs, (std::vector<SlabSpec>{{2 * kMiB, TensorClass::kShared}}));
  EXPECT_EQ(layout.total_bytes(), 2 * kMiB);
}

TEST(SlabLayout, OpensASlabWhenOneIsFullAndOneForALargerTensor) {
  const std::int64_t mib = 1 << 20;
  const SlabLayout layout =
      lay_out(program({tensor(3 * mib), tensor(2 * mib), tensor(9 * mib), tensor(mib)}), 4 * kMiB);
  EXPECT_EQ(layout.placements[0], (Placement{0, 0, 3 * kMiB}));
  EXPECT_EQ(layout.placements[1], (Placement{1, 0, 2 * kMiB}));
  EXPECT_EQ(layout.placements[2], (Placement{2, 0, 9 * kMiB}));
  EXPECT_EQ(layout.placements[3], (Placement{3, 0, kMiB}));
  ASSERT_EQ(layout.slabs.size(), 4U);
  EXPECT_EQ(layout.slabs[0].bytes, 4 * kMiB);
  EXPECT_EQ(layout.slabs[2].bytes, 10 * kMiB);
}

TEST(SlabLayout, KeepsPrivateTensorsInSlabsOfTheirOwn) {
  const SlabLayout layout =
      lay_out(program({tensor(8), tensor(8, TensorClass::kPrivate), tensor(8)}));
  EXPECT_EQ(layout.placements, (std::vector<Placement>{{0, 0, 8}, {1, 0, 8}, {0, 512, 8}}));
  EXPECT_EQ(layout.slabs[1].cls, TensorClass::kPrivate);
}

TEST(SlabLayout, AliasesLieWhereTheirTensorLies) {
  TargetTensor alias = tensor(600);
  alias.alias = 2;
  const SlabLayout layout = lay_out(program({tensor(8), alias, tensor(600)}));
  EXPECT_EQ(layout.placements[1], layout.placements[2]);
  EXPECT_EQ(layout.placements[2], (Placement{0, 512, 600}));
}

TEST(SlabLayout, StridedTensorsTakeTheirExtentAndEmptyOnesNothing) {
  TargetTensor strided = tensor(0);
  strided.shape = {3, 4};
  strided.strides = {10, 1};
  const SlabLayout layout = lay_out(program({tensor(0), strided}));
  EXPECT_EQ(layout.placements, (std::vector<Placement>{{0, 0, 0}, {0, 0, 24}}));
  EXPECT_EQ(lay_out(program({tensor(0)})).slabs.size(), 1U);
  EXPECT_TRUE(lay_out(program({})).slabs.empty());
}

TEST(SlabLayout, SubByteElementsAreRoundedUp) {
  TargetTensor four_bits = tensor(7);
  four_bits.dtype = DType::kF4;
  EXPECT_EQ(lay_out(program({four_bits})).placements[0].bytes, 4U);
}

}  // namespace
}  // namespace preload::test
