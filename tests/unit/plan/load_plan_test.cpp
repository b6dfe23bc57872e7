// SPDX-License-Identifier: Apache-2.0
#include "plan/load_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

// Executes the operations on the files' bytes, as a loader would, without conversions.
std::vector<Bytes> execute(const LoadPlan& plan, const Checkpoint& checkpoint) {
  std::vector<Bytes> files;
  for (const SourceFile& file : checkpoint.files) files.emplace_back(file.bytes);
  for (const SourceTensor& tensor : checkpoint.tensors) {
    const Bytes bytes = rule_bytes(tensor);
    std::ranges::copy(bytes,
                      files[tensor.file].begin() + static_cast<std::ptrdiff_t>(tensor.offset));
  }
  std::vector<Bytes> out;
  for (const Placement& place : plan.slabs.placements) {
    out.emplace_back(place.bytes, std::byte{0xa5});
  }
  for (const FillOp& fill : plan.fills) {
    EXPECT_EQ(fill.element_bits, 0U);
    std::ranges::fill(out[fill.tensor], std::byte{0});
  }
  for (const CopyOp& op : plan.ops) {
    EXPECT_FALSE(op.converts());
    EXPECT_EQ(op.file_offset, checkpoint.tensors[op.source].offset + op.source_offset);
    for (std::uint64_t row = 0; row < op.rows; ++row) {
      std::memcpy(out[op.tensor].data() + op.target_offset + row * op.target_stride,
                  files[op.file].data() + op.file_offset + row * op.file_stride, op.row_bytes);
    }
  }
  return out;
}

LoadPlan plan_of(const CopyProgram& program, const Checkpoint& checkpoint) {
  check_program(program, checkpoint);
  return plan_load(program, checkpoint);
}

CopyProgram llama_program(const Checkpoint& checkpoint, const ParallelSizes& sizes, int global) {
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), LayoutRequest{},
                      sizes, coords_of(global, sizes));
}

TEST(LoadPlan, PutsTheSameBytesInPlaceAsTheProgramsMoves) {
  const Checkpoint checkpoint = llama_checkpoint({});
  const ParallelSizes sizes{1, 1, 4};
  for (int rank = 0; rank < 4; ++rank) {
    const CopyProgram program = llama_program(checkpoint, sizes, rank);
    const std::vector<Bytes> expected = test::execute(program, checkpoint);
    const std::vector<Bytes> held = execute(plan_of(program, checkpoint), checkpoint);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(held[i], expected[i]) << program.tensors[i].name << " on rank " << rank;
    }
  }
}

TEST(LoadPlan, ReadsInFileOrderAndCountsWhatItReads) {
  const Checkpoint checkpoint = fixture_checkpoint("llama");
  const LoadPlan plan = plan_of(llama_program(checkpoint, {1, 1, 2}, 1), checkpoint);
  EXPECT_TRUE(std::ranges::is_sorted(
      plan.ops, {}, [](const CopyOp& op) { return std::tuple(op.file, op.file_offset); }));
  std::uint64_t bytes = 0;
  for (const CopyOp& op : plan.ops) bytes += op.rows * op.row_bytes;
  EXPECT_EQ(plan.read_bytes, bytes);
}

TEST(LoadPlan, ColumnsAreRowsOfAStrideAndRowsAreOnePiece) {
  const Checkpoint checkpoint = llama_checkpoint({});
  const CopyProgram program = llama_program(checkpoint, {1, 1, 2}, 1);
  const LoadPlan plan = plan_of(program, checkpoint);
  std::map<std::string, std::vector<CopyOp>> by_source;
  for (const CopyOp& op : plan.ops) by_source[checkpoint.tensors[op.source].name].push_back(op);
  const std::vector<CopyOp>& rows = by_source["model.layers.0.mlp.up_proj.weight"];
  ASSERT_EQ(rows.size(), 1U);  // rows 24 to 47 of 32 columns
  EXPECT_EQ(rows[0].rows, 1U);
  EXPECT_EQ(rows[0].row_bytes, 24U * 32 * 2);
  EXPECT_EQ(rows[0].source_offset, 24U * 32 * 2);
  EXPECT_EQ(rows[0].target_offset, 24U * 32 * 2);  // behind the gate
  const std::vector<CopyOp>& columns = by_source["model.layers.0.mlp.down_proj.weight"];
  ASSERT_EQ(columns.size(), 1U);  // columns 24 to 47 of 48, 32 rows
  EXPECT_EQ(columns[0].rows, 32U);
  EXPECT_EQ(columns[0].row_bytes, 24U * 2);
  EXPECT_EQ(columns[0].file_stride, 48U * 2);
  EXPECT_EQ(columns[0].target_stride, 24U * 2);
  EXPECT_EQ(columns[0].source_offset, 24U * 2);
}

TEST(LoadPlan, FillsOnlyWhereNoMoveReaches) {
  const Checkpoint checkpoint = llama_checkpoint({});
  const CopyProgram program = llama_program(checkpoint, {1, 1, 2}, 1);
  std::vector<std::string> filled;
  for (const FillOp& fill : plan_of(program, checkpoint).fills) {
    filled.push_back(program.tensors[fill.tensor].name);
  }
  EXPECT_EQ(filled, (std::vector<std::string>{"model.embed_tokens.weight", "lm_head.weight"}));
  EXPECT_TRUE(plan_of(llama_program(checkpoint, {1, 1, 2}, 0), checkpoint).fills.empty());
}

TargetTensor target(DType dtype, Dims shape, std::vector<Move> moves) {
  TargetTensor tensor;
  tensor.name = "t";
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = contiguous_strides(shape);
  tensor.moves = std::move(moves);
  return tensor;
}

LoadPlan plan_of(const TargetTensor& tensor, const Checkpoint& checkpoint) {
  CopyProgram program;
  program.tensors.push_back(tensor);
  return plan_of(program, checkpoint);
}

TEST(LoadPlan, MergesMovesThatContinueEachOther) {
  const Checkpoint checkpoint = make_checkpoint("{}", {{"s", DType::kF32, {8, 4}}});
  const LoadPlan plan = plan_of(target(DType::kF32, {8, 4},
                                       {{0, {4, 4}, 16, {4, 1}, 16, {4, 1}, Conversion::kNone},
                                        {0, {2, 4}, 8, {4, 1}, 8, {4, 1}, Conversion::kNone},
                                        {0, {8}, 0, {1}, 0, {1}, Conversion::kNone}}),
                                checkpoint);
  ASSERT_EQ(plan.ops.size(), 1U);
  EXPECT_EQ(plan.ops[0].row_bytes, 128U);
}

TEST(LoadPlan, TransposesAndThreeAxesComeOutRight) {
  const Checkpoint checkpoint =
      make_checkpoint("{}", {{"s", DType::kU16, {5, 7}}, {"e", DType::kU16, {3, 4, 5}}});
  CopyProgram program;
  program.tensors.push_back(
      target(DType::kU16, {7, 5}, {{0, {7, 5}, 0, {1, 7}, 0, {5, 1}, Conversion::kNone}}));
  // The middle columns of the middle rows of each of three matrices, swapped with the first axis.
  program.tensors.push_back(target(
      DType::kU16, {2, 3, 3}, {{1, {3, 2, 3}, 6, {20, 5, 1}, 0, {3, 9, 1}, Conversion::kNone}}));
  const std::vector<Bytes> held = execute(plan_of(program, checkpoint), checkpoint);
  EXPECT_EQ(held, test::execute(program, checkpoint));
}

TEST(LoadPlan, ConversionsReadSourceBytesAndPlaceTargetBytes) {
  const Checkpoint checkpoint = make_checkpoint("{}", {{"s", DType::kF32, {4, 6}}});
  const LoadPlan plan =
      plan_of(target(DType::kBF16, {4, 3}, {{0, {4, 3}, 3, {6, 1}, 0, {3, 1}, Conversion::kValue}}),
              checkpoint);
  ASSERT_EQ(plan.ops.size(), 1U);
  EXPECT_TRUE(plan.ops[0].converts());
  EXPECT_EQ(plan.ops[0].row_bytes, 12U);
  EXPECT_EQ(target_row_bytes(plan.ops[0]), 6U);
  EXPECT_EQ(plan.ops[0].file_stride, 24U);
  EXPECT_EQ(plan.ops[0].target_stride, 6U);
}

TEST(LoadPlan, ReinterpretedBytesStayBytes) {
  const Checkpoint checkpoint = make_checkpoint("{}", {{"s", DType::kU8, {16}}});
  const LoadPlan plan = plan_of(
      target(DType::kF8E8M0, {16}, {{0, {16}, 0, {1}, 0, {1}, Conversion::kBits}}), checkpoint);
  ASSERT_EQ(plan.ops.size(), 1U);
  EXPECT_FALSE(plan.ops[0].converts());
}

TEST(LoadPlan, ScalarsAreReadAndEmptyTensorsAreNot) {
  const Checkpoint checkpoint =
      make_checkpoint("{}", {{"s", DType::kF32, {}}, {"e", DType::kF32, {0, 4}}});
  CopyProgram program;
  program.tensors.push_back(target(DType::kF32, {}, {{0, {}, 0, {}, 0, {}, Conversion::kNone}}));
  program.tensors.push_back(
      target(DType::kF32, {0, 4}, {{1, {0, 4}, 0, {4, 1}, 0, {4, 1}, Conversion::kNone}}));
  const LoadPlan plan = plan_of(program, checkpoint);
  ASSERT_EQ(plan.ops.size(), 1U);
  EXPECT_EQ(plan.ops[0].row_bytes, 4U);
  EXPECT_EQ(plan.read_bytes, 4U);
}

TEST(LoadPlan, HalfBytesAreRefused) {
  const Checkpoint checkpoint = make_checkpoint("{}", {{"s", DType::kF4, {4, 3}}});
  EXPECT_THROW(
      plan_of(target(DType::kF4, {4, 1}, {{0, {4, 1}, 0, {3, 1}, 0, {1, 1}, Conversion::kNone}}),
              checkpoint),
      Error);
}

}  // namespace
}  // namespace preload::test
