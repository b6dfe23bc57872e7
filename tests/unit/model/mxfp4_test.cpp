// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kExperts = 2;
constexpr int kHidden = 96;
constexpr int kIntermediate = 160;  // five blocks of 32

// GPT-OSS as it is stored: blocks of 16 bytes, which are 32 numbers of 4 bits, and a scale for
// each.
Checkpoint gpt_oss(int intermediate = kIntermediate) {
  const DType bf16 = DType::kBF16;
  const std::string at = "model.layers.0.";
  std::vector<Stored> tensors{
      {"model.embed_tokens.weight", bf16, {64, kHidden}},
      {at + "input_layernorm.weight", bf16, {kHidden}},
      {at + "post_attention_layernorm.weight", bf16, {kHidden}},
      {at + "self_attn.sinks", bf16, {4}},
      {at + "mlp.router.weight", bf16, {kExperts, kHidden}},
      {at + "mlp.router.bias", bf16, {kExperts}},
      {at + "mlp.experts.gate_up_proj_blocks",
       DType::kU8,
       {kExperts, 2 * intermediate, kHidden / 32, 16}},
      {at + "mlp.experts.gate_up_proj_scales",
       DType::kU8,
       {kExperts, 2 * intermediate, kHidden / 32}},
      {at + "mlp.experts.gate_up_proj_bias", bf16, {kExperts, 2 * intermediate}},
      {at + "mlp.experts.down_proj_blocks", DType::kU8, {kExperts, kHidden, intermediate / 32, 16}},
      {at + "mlp.experts.down_proj_scales", DType::kU8, {kExperts, kHidden, intermediate / 32}},
      {at + "mlp.experts.down_proj_bias", bf16, {kExperts, kHidden}},
      {"model.norm.weight", bf16, {kHidden}},
      {"lm_head.weight", bf16, {64, kHidden}}};
  for (const auto& [name, rows] : {std::pair{"q", 64}, {"k", 32}, {"v", 32}}) {
    tensors.push_back({fmt::format("{}self_attn.{}_proj.weight", at, name), bf16, {rows, kHidden}});
    tensors.push_back({fmt::format("{}self_attn.{}_proj.bias", at, name), bf16, {rows}});
  }
  tensors.push_back({at + "self_attn.o_proj.weight", bf16, {kHidden, 64}});
  tensors.push_back({at + "self_attn.o_proj.bias", bf16, {kHidden}});
  const std::string config = fmt::format(
      R"({{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "dtype": "bfloat16",
          "hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": 1,
          "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
          "num_local_experts": {}, "quantization_config": {{"quant_method": "mxfp4"}}}})",
      kHidden, intermediate, kExperts);
  return make_checkpoint(config, tensors);
}

struct Job {
  std::string layout = "vllm";
  std::string backend = "marlin";
  ParallelSizes sizes = {};
  std::optional<DType> dtype = {};
};

CopyProgram program_of(const Checkpoint& checkpoint, const Job& job, int rank = 0) {
  LayoutRequest request;
  request.layout = job.layout;
  request.moe_backend = job.backend;
  request.dtype = job.dtype;
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, job.sizes,
                      coords_of(rank, job.sizes));
}

std::string refusal(const Checkpoint& checkpoint, const Job& job) {
  try {
    program_of(checkpoint, job);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    return error.what();
  }
  return "nothing was refused";
}

Bytes stored(const Checkpoint& checkpoint, std::string_view name) {
  const auto at = std::ranges::find(checkpoint.tensors, name, &SourceTensor::name);
  return rule_bytes(*at);
}

// Rows `first` to `last` and bytes `begin` to `end` of each row, of every expert, with zeros behind
// up to `rows` rows of `width` bytes.
struct Cut {
  int stored_rows;
  int stored_width;
  int first;
  int last;
  int begin;
  int end;
  int rows;
  int width;
};
Bytes cut_out(const Bytes& whole, const Cut& cut) {
  Bytes out;
  for (int expert = 0; expert < kExperts; ++expert) {
    for (int row = 0; row < cut.rows; ++row) {
      for (int byte = 0; byte < cut.width; ++byte) {
        const bool inside = row < cut.last - cut.first && byte < cut.end - cut.begin;
        const int at = (expert * cut.stored_rows + cut.first + row) * cut.stored_width + cut.begin;
        out.push_back(inside ? whole[static_cast<std::size_t>(at + byte)] : std::byte{0});
      }
    }
  }
  return out;
}

Bytes served(const CopyProgram& program, const Checkpoint& checkpoint, std::string_view name) {
  const auto at = std::ranges::find(program.tensors, name, &TargetTensor::name);
  return execute(program, checkpoint)[static_cast<std::size_t>(at - program.tensors.begin())];
}

// Two ranks of five blocks: three for the first, two for the second; a share of 80 is padded to
// 128, a hidden size of 96 to 256.
TEST(Mxfp4, ExpertsAreCutByBlocksAndPaddedForTheKernel) {
  const Checkpoint checkpoint = gpt_oss();
  const Job job{.sizes = {1, 1, 2}};
  const std::string from = "model.layers.0.mlp.experts.";
  const std::string at = from + "routed_experts.";
  for (int rank = 0; rank < 2; ++rank) {
    const CopyProgram program = program_of(checkpoint, job, rank);
    const int begin = rank == 0 ? 0 : 96;
    const int end = rank == 0 ? 96 : 160;
    EXPECT_EQ(tensor_named(program, at + "w13_weight").shape, (Dims{2, 256, 128}));
    EXPECT_EQ(tensor_named(program, at + "w13_weight").dtype, DType::kU8);
    EXPECT_EQ(served(program, checkpoint, at + "w13_weight"),
              cut_out(stored(checkpoint, from + "gate_up_proj_blocks"),
                      {320, 48, 2 * begin, 2 * end, 0, 48, 256, 128}));
    EXPECT_EQ(tensor_named(program, at + "w13_weight_scale").shape, (Dims{2, 256, 8}));
    EXPECT_EQ(served(program, checkpoint, at + "w13_weight_scale"),
              cut_out(stored(checkpoint, from + "gate_up_proj_scales"),
                      {320, 3, 2 * begin, 2 * end, 0, 3, 256, 8}));
    EXPECT_EQ(tensor_named(program, at + "w2_weight").shape, (Dims{2, 256, 64}));
    EXPECT_EQ(served(program, checkpoint, at + "w2_weight"),
              cut_out(stored(checkpoint, from + "down_proj_blocks"),
                      {96, 80, 0, 96, begin / 2, end / 2, 256, 64}));
    EXPECT_EQ(tensor_named(program, at + "w2_weight_scale").shape, (Dims{2, 256, 4}));
    EXPECT_EQ(served(program, checkpoint, at + "w2_weight_scale"),
              cut_out(stored(checkpoint, from + "down_proj_scales"),
                      {96, 5, 0, 96, begin / 32, end / 32, 256, 4}));
    EXPECT_EQ(tensor_named(program, at + "w13_bias").shape, (Dims{2, 256}));
    EXPECT_EQ(served(program, checkpoint, at + "w13_bias"),
              cut_out(stored(checkpoint, from + "gate_up_proj_bias"),
                      {1, 640, 0, 1, 4 * begin, 4 * end, 1, 512}));
    EXPECT_EQ(served(program, checkpoint, at + "w2_bias"),
              cut_out(stored(checkpoint, from + "down_proj_bias"),
                      {1, 192, 0, 1, 0, rank == 0 ? 192 : 0, 1, 512}))
        << "what all ranks add up is on the first alone";
  }
}

TEST(Mxfp4, TheBackendDecidesTheShapes) {
  const Checkpoint checkpoint = gpt_oss();
  const std::pair<const char*, Dims> shapes[] = {
      {"marlin", {2, 512, 128}},
      {"flashinfer_trtllm", {2, 512, 128}},
      {"flashinfer_cutlass", {2, 512, 64}},
      {"triton", {2, 384, 48}},
      {"emulation", {2, 320, 48}},
      {"b12x", {2, 320, 48}},
  };
  for (const auto& [backend, shape] : shapes) {
    const CopyProgram program = program_of(checkpoint, {.backend = backend});
    EXPECT_EQ(tensor_named(program, "model.layers.0.mlp.experts.routed_experts.w13_weight").shape,
              shape)
        << backend;
  }
}

TEST(Mxfp4, ExpertParallelRanksHoldWholeExperts) {
  const Checkpoint checkpoint = gpt_oss();
  const ParallelSizes sizes{.tp = 2, .expert_parallel = true};
  const CopyProgram program = program_of(checkpoint, {.sizes = sizes}, 1);
  const std::string from = "model.layers.0.mlp.experts.";
  Bytes second = stored(checkpoint, from + "down_proj_scales");
  second.erase(second.begin(), second.begin() + static_cast<std::ptrdiff_t>(second.size() / 2));
  Bytes expected;
  for (std::size_t row = 0; row < 256; ++row) {
    for (std::size_t block = 0; block < 8; ++block) {
      expected.push_back(row < 96 && block < 5 ? second[row * 5 + block] : std::byte{0});
    }
  }
  EXPECT_EQ(served(program, checkpoint, from + "routed_experts.w2_weight_scale"), expected);
}

TEST(Mxfp4, TheHfLayoutCutsTheSameBlocksAndPadsNothing) {
  const Checkpoint checkpoint = gpt_oss();
  const std::string from = "model.layers.0.mlp.experts.";
  const Job whole{.layout = "hf", .backend = "auto"};
  const CopyProgram one = program_of(checkpoint, whole);
  EXPECT_EQ(one.tensors.size(), checkpoint.tensors.size());
  EXPECT_EQ(tensor_named(one, from + "down_proj_blocks").shape, (Dims{2, 96, 5, 16}));
  EXPECT_EQ(served(one, checkpoint, from + "down_proj_blocks"),
            stored(checkpoint, from + "down_proj_blocks"));
  const Job two{.layout = "hf", .backend = "auto", .sizes = {1, 1, 2}};
  const CopyProgram cut = program_of(checkpoint, two, 1);
  EXPECT_EQ(tensor_named(cut, from + "gate_up_proj_blocks").shape, (Dims{2, 128, 3, 16}));
  EXPECT_EQ(tensor_named(cut, from + "gate_up_proj_bias").shape, (Dims{2, 128}));
  EXPECT_EQ(tensor_named(cut, from + "down_proj_blocks").shape, (Dims{2, 96, 2, 16}));
  EXPECT_EQ(
      served(cut, checkpoint, from + "down_proj_blocks"),
      cut_out(stored(checkpoint, from + "down_proj_blocks"), {96, 80, 0, 96, 48, 80, 96, 32}));
}

TEST(Mxfp4, WithoutABackendTheEnginesShapesAreRefused) {
  const Checkpoint checkpoint = gpt_oss();
  EXPECT_THAT(refusal(checkpoint, {.backend = "auto"}),
              AllOf(HasSubstr("--kernel-config"), HasSubstr("moe_backend"), HasSubstr("marlin")));
  EXPECT_THAT(refusal(checkpoint, {.backend = "cutlass"}), HasSubstr("cutlass has none for them"));
  EXPECT_THAT(refusal(checkpoint, {.layout = "transformers"}), HasSubstr("mxfp4"));
}

TEST(Mxfp4, WhatVllmRefusesIsRefusedBeforeLoading) {
  EXPECT_THAT(refusal(gpt_oss(), {.sizes = {1, 1, 3}}),
              HasSubstr("intermediate_size 160 is not divisible by the 3 ranks of the job"));
  EXPECT_THAT(refusal(gpt_oss(), {.backend = "b12x", .sizes = {1, 1, 2}}),
              HasSubstr("no multiple of 32, which the MoE backend b12x refuses"));
  EXPECT_THAT(refusal(gpt_oss(), {.dtype = DType::kF16}), HasSubstr("use bfloat16"));
  EXPECT_THAT(refusal(gpt_oss(144), {}), HasSubstr("no multiple of MXFP4's blocks of 32"));
}

TEST(Mxfp4, BlocksOfAnotherShapeOrTypeAreRefused) {
  Checkpoint checkpoint = gpt_oss();
  for (SourceTensor& tensor : checkpoint.tensors) {
    if (tensor.name.ends_with("down_proj_blocks")) tensor.shape = {2, 96, 80};
    if (tensor.name.ends_with("down_proj_scales")) tensor.dtype = DType::kI8;
  }
  EXPECT_THAT(refusal(checkpoint, {}), AllOf(HasSubstr("[2, 96, 5, 16]"), HasSubstr("must be U8")));
}

}  // namespace
}  // namespace preload::test
