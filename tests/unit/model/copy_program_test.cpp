// SPDX-License-Identifier: Apache-2.0
#include "model/copy_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.hpp"
#include "model/target_cover.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using testing::HasSubstr;

// A 4 x 6 target made of two 2 x 6 halves, the second taken from a transposed source.
CopyProgram good_program() {
  CopyProgram program;
  TargetTensor tensor;
  tensor.name = "t";
  tensor.dtype = DType::kF32;
  tensor.shape = {4, 6};
  tensor.strides = {6, 1};
  tensor.moves = {{0, {2, 6}, 0, {6, 1}, 0, {6, 1}, Conversion::kNone},
                  {1, {2, 6}, 0, {1, 2}, 12, {6, 1}, Conversion::kNone}};
  program.tensors.push_back(tensor);
  TargetTensor alias = tensor;
  alias.name = "a";
  alias.moves.clear();
  alias.alias = 0;
  program.tensors.push_back(alias);
  return program;
}

Checkpoint sources() {
  return make_checkpoint("{}", {{"s", DType::kF32, {2, 6}}, {"u", DType::kF32, {6, 2}}});
}

TEST(CopyProgram, PassesWhatCoversEveryElementOnce) {
  EXPECT_NO_THROW(check_program(good_program(), sources()));
}

TEST(CopyProgram, RefusesFaultsNamingTheTensor) {
  struct Case {
    std::string text;
    std::function<void(CopyProgram&)> spoil;
  };
  const Case cases[] = {
      {"leaves its source s [2, 6]", [](auto& p) { p.tensors[0].moves[0].source_offset = 1; }},
      {"leaves the target [4, 6]", [](auto& p) { p.tensors[0].moves[1].target_offset = 13; }},
      {"two moves write the same element",
       [](auto& p) { p.tensors[0].moves[1].target_offset = 6; }},
      {"no move and no fill", [](auto& p) { p.tensors[0].moves.pop_back(); }},
      {"a fill where moves reach every element", [](auto& p) { p.tensors[0].fill = 0.0; }},
      {"names no source", [](auto& p) { p.tensors[0].moves[0].source = 2; }},
      {"negative", [](auto& p) { p.tensors[0].moves[0].source_offset = -1; }},
      {"plain move between different types", [](auto& p) { p.tensors[0].dtype = DType::kI32; }},
      {"another number of axes", [](auto& p) { p.tensors[0].moves[0].target_strides = {1}; }},
      {"not the whole of t",
       [](auto& p) {
         p.tensors[1].shape = {4, 5};
       }},
      {"alias of no tensor", [](auto& p) { p.tensors[1].alias = 7; }},
      {"alias of an alias", [](auto& p) { p.tensors[1].alias = 1; }},
      {"contents of its own", [](auto& p) { p.tensors[1].fill = 1.0; }},
  };
  for (const Case& c : cases) {
    CopyProgram program = good_program();
    c.spoil(program);
    try {
      check_program(program, sources());
      ADD_FAILURE() << "passed: " << c.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kInternal);
      EXPECT_THAT(error.what(), HasSubstr(c.text));
      EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr(" t: "), HasSubstr(" a: ")));
    }
  }
}

TargetTensor tensor(Dims shape, Dims strides, std::vector<Move> moves) {
  TargetTensor out;
  out.shape = shape;
  out.strides = strides;
  out.moves = std::move(moves);
  return out;
}
Move to(std::int64_t offset, Dims sizes, Dims strides) {
  return {0, sizes, 0, strides, offset, strides, Conversion::kNone};
}

TEST(TargetCover, IsExactForBoxesOfTheAxes) {
  // Columns of a 4 x 6 tensor: [0, 2) and [2, 6).
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {4, 2}, {6, 1}), to(2, {4, 4}, {6, 1})})),
            TargetCover::kWhole);
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {4, 3}, {6, 1}), to(2, {4, 4}, {6, 1})})),
            TargetCover::kOverlap);
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {4, 2}, {6, 1})})), TargetCover::kPart);
  // One run over two axes.
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {24}, {1})})), TargetCover::kWhole);
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {12}, {1}), to(12, {12}, {1})})),
            TargetCover::kWhole);
}

TEST(TargetCover, IsExactForEveryOtherShapeOfMove) {
  // Even and odd rows; runs that end within a row; interleaved heads.
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {2, 6}, {12, 1}), to(6, {2, 6}, {12, 1})})),
            TargetCover::kWhole);
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {9}, {1}), to(9, {15}, {1})})),
            TargetCover::kWhole);
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {10}, {1}), to(9, {15}, {1})})),
            TargetCover::kOverlap);
  EXPECT_EQ(target_cover(tensor({4, 6}, {6, 1}, {to(0, {2, 6}, {12, 1}), to(0, {2, 6}, {6, 1})})),
            TargetCover::kOverlap);
}

TEST(TargetCover, KnowsStridedTensors) {
  // 3 x 4 with rows 6 apart: two elements of each row belong to nobody.
  EXPECT_EQ(target_cover(tensor({3, 4}, {6, 1}, {to(0, {3, 4}, {6, 1})})), TargetCover::kWhole);
  EXPECT_EQ(target_cover(tensor({3, 4}, {6, 1}, {to(0, {16}, {1})})), TargetCover::kOutside);
  EXPECT_EQ(target_cover(tensor({3, 4}, {1, 3}, {to(0, {4, 3}, {3, 1})})), TargetCover::kWhole);
}

TEST(TargetCover, TakesScalarsAndEmptyTensors) {
  EXPECT_EQ(target_cover(tensor({}, {}, {to(0, {}, {})})), TargetCover::kWhole);
  EXPECT_EQ(target_cover(tensor({}, {}, {})), TargetCover::kPart);
  EXPECT_EQ(target_cover(tensor({0, 3}, {3, 1}, {})), TargetCover::kWhole);
  EXPECT_EQ(target_cover(tensor({0, 3}, {3, 1}, {to(0, {0, 3}, {3, 1})})), TargetCover::kWhole);
}

}  // namespace
}  // namespace preload::test
