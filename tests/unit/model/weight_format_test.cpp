// SPDX-License-Identifier: Apache-2.0
#include "model/weight_format.hpp"

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

CopyProgram program_of(const Checkpoint& checkpoint, const std::string& layout, int tp, int rank) {
  LayoutRequest request;
  request.layout = layout;
  const ParallelSizes sizes{1, 1, tp};
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, sizes,
                      coords_of(rank, sizes));
}

std::string refusal(const Checkpoint& checkpoint, const std::string& layout, int tp) {
  try {
    program_of(checkpoint, layout, tp, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    return error.what();
  }
  return "nothing was refused";
}

std::string refused_format(const std::string& quantization_config) {
  return weight_format(
             parse_model_spec(R"({"quantization_config": )" + quantization_config + "}", ""))
      .refusal;
}

TEST(WeightFormat, WhatIsNotUnderstoodIsRefusedByName) {
  EXPECT_THAT(refused_format(R"({"quant_method": "gptq"})"), HasSubstr("gptq"));
  EXPECT_THAT(refused_format(R"({"quant_method": "fp8", "weight_block_size": 128})"),
              HasSubstr("weight_block_size"));
  EXPECT_THAT(refused_format(R"({"quant_method": "fp8", "weight_block_size": [128, 128],
                                 "activation_scheme": "static"})"),
              HasSubstr("static"));
  EXPECT_THAT(refused_format(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
                                 "config_groups": {"a": {"weights": {"num_bits": 4}}}})"),
              HasSubstr("pack-quantized"));
  EXPECT_THAT(refused_format(R"({"quant_method": "compressed-tensors", "config_groups": 3})"),
              HasSubstr("config_groups"));
  EXPECT_THAT(refused_format(R"({"quant_method": "fp8", "weight_block_size": [0, 128]})"),
              HasSubstr("weight_block_size"));
}

TEST(WeightFormat, ScalesInTheHfLayoutAreCutWithTheirWeights) {
  const Checkpoint checkpoint = fixture_checkpoint("qwen3_fp8");  // blocks of 128
  const CopyProgram program = program_of(checkpoint, "hf", 2, 1);
  const std::string at = "model.layers.0.";
  // 768 rows of 256 columns: six blocks by two, of which the rank holds the lower three rows.
  const TargetTensor& up = tensor_named(program, at + "mlp.up_proj.weight_scale_inv");
  EXPECT_EQ(up.shape, (Dims{3, 2}));
  ASSERT_EQ(up.moves.size(), 1U);
  EXPECT_EQ(up.moves[0].source_offset, 6);
  const TargetTensor& down = tensor_named(program, at + "mlp.down_proj.weight_scale_inv");
  EXPECT_EQ(down.shape, (Dims{2, 3}));
  EXPECT_EQ(down.moves[0].source_offset, 3);
  EXPECT_EQ(tensor_named(program, at + "mlp.up_proj.weight").dtype, DType::kF8E4M3);
  EXPECT_EQ(
      std::ranges::count_if(program.tensors,
                            [](const TargetTensor& t) { return t.cls == TensorClass::kPrivate; }),
      0)
      << "what only the engine keeps is no stored tensor";
}

TEST(WeightFormat, WhatTheEngineMayWriteIsPrivate) {
  const CopyProgram program = program_of(fixture_checkpoint("qwen3_fp8"), "vllm", 2, 0);
  const TargetTensor& scale = tensor_named(program, "model.layers.0.self_attn.attn.k_scale");
  EXPECT_EQ(scale.cls, TensorClass::kPrivate);
  EXPECT_EQ(scale.fill, -1.0);
  EXPECT_EQ(scale.shape, Dims{});
}

TEST(WeightFormat, AShardThatWouldCutABlockIsRefusedAsVllmDoes) {
  const Checkpoint checkpoint = fixture_checkpoint("qwen3_fp8");
  // 4 KV heads of 64: at tp 4 a rank's k and v are half a block.
  for (const char* layout : {"vllm", "hf"}) {
    EXPECT_THAT(refusal(checkpoint, layout, 4),
                AllOf(HasSubstr("self_attn.k_proj.weight_scale_inv"), HasSubstr("64 rows"),
                      HasSubstr("blocks of 128")));
  }
  EXPECT_EQ(refusal(checkpoint, "vllm", 2), "nothing was refused");
  // The columns of an output projection: 512 of them make four blocks.
  EXPECT_THAT(refusal(checkpoint, "vllm", 8), HasSubstr("o_proj.weight_scale_inv"));
}

// A Llama whose projections are F8_E4M3 with a scale for each weight and, when static, its input.
Checkpoint tensor_fp8(const std::string& quantization_config, bool fixed, const Dims& scale) {
  std::vector<Stored> tensors;
  for (const Stored& stored : llama_tensors({})) {
    tensors.push_back(stored);
    if (!stored.name.ends_with("_proj.weight")) continue;
    tensors.back().dtype = DType::kF8E4M3;
    const std::string at = stored.name.substr(0, stored.name.size() - 6);
    tensors.push_back({at + "weight_scale", DType::kF32, scale});
    if (fixed) tensors.push_back({at + "input_scale", DType::kF32, scale});
  }
  std::string config = llama_config({});
  config.insert(1, "\"quantization_config\": " + quantization_config + ", ");
  return make_checkpoint(config, tensors);
}

TEST(WeightFormat, AScaleForEachWeightIsOneElementOfTheFusedOnes) {
  const std::string compressed =
      R"({"quant_method": "compressed-tensors", "config_groups": {"g": {
          "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
          "input_activations": {"dynamic": false}}}})";
  for (const auto& [config, fixed] :
       {std::pair<std::string, bool>{R"({"quant_method": "fp8"})", false},
        {R"({"quant_method": "fp8", "activation_scheme": "static"})", true},
        {compressed, true}}) {
    SCOPED_TRACE(config);
    const Checkpoint checkpoint = tensor_fp8(config, fixed, fixed ? Dims{1} : Dims{});
    const CopyProgram program = program_of(checkpoint, "vllm", 2, 1);
    const std::string at = "model.layers.1.self_attn.";
    const TargetTensor& scale = tensor_named(program, at + "qkv_proj.weight_scale");
    EXPECT_EQ(scale.shape, Dims{3});
    EXPECT_EQ(scale.dtype, DType::kF32);
    ASSERT_EQ(scale.moves.size(), 3U);
    const char* parts[] = {"q_proj", "k_proj", "v_proj"};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(checkpoint.tensors[scale.moves[i].source].name, at + parts[i] + ".weight_scale");
      EXPECT_EQ(scale.moves[i].target_offset, static_cast<std::int64_t>(i));
    }
    EXPECT_EQ(tensor_named(program, at + "o_proj.weight_scale").shape, Dims{1});
    const auto input =
        std::ranges::find(program.tensors, at + "qkv_proj.input_scale", &TargetTensor::name);
    EXPECT_EQ(input != program.tensors.end(), fixed);
    const CopyProgram stored = program_of(checkpoint, "hf", 2, 1);
    EXPECT_EQ(tensor_named(stored, at + "q_proj.weight_scale").shape, fixed ? Dims{1} : Dims{});
    EXPECT_EQ(stored.tensors.size(), checkpoint.tensors.size());
  }
}

TEST(WeightFormat, ExpertsWithAScaleForEachWeightAreRefused) {
  Checkpoint checkpoint = fixture_checkpoint("deepseek_v3_fp8");
  const std::string block = R"("weight_block_size":[128,128])";
  const std::size_t at = checkpoint.config_json.find(block);
  ASSERT_NE(at, std::string::npos);
  checkpoint.config_json.replace(at, block.size(), R"("other":1)");
  for (SourceTensor& tensor : checkpoint.tensors) {
    if (tensor.name.ends_with("weight_scale_inv")) {
      tensor.name.resize(tensor.name.size() - 4);
      tensor.shape = {};
    }
  }
  EXPECT_THAT(refusal(checkpoint, "vllm", 1), HasSubstr("experts with one scale for each weight"));
  EXPECT_EQ(refusal(checkpoint, "hf", 2), "nothing was refused");
}

TEST(WeightFormat, AWeightWithoutItsScaleIsRefused) {
  Checkpoint checkpoint = fixture_checkpoint("qwen3_fp8");
  std::erase_if(checkpoint.tensors, [](const SourceTensor& tensor) {
    return tensor.name == "model.layers.1.mlp.down_proj.weight_scale_inv";
  });
  for (const char* layout : {"vllm", "hf"}) {
    EXPECT_THAT(refusal(checkpoint, layout, 1),
                AllOf(HasSubstr("model.layers.1.mlp.down_proj.weight is stored as F8_E4M3"),
                      HasSubstr("weight_scale_inv")));
  }
  std::erase_if(checkpoint.tensors, [](const SourceTensor& tensor) {
    return tensor.name == "model.layers.1.mlp.up_proj.weight_scale_inv";
  });
  EXPECT_THAT(refusal(checkpoint, "vllm", 1),
              HasSubstr("missing: \"model.layers.1.mlp.up_proj.weight_scale_inv\""));
}

TEST(WeightFormat, LayersThatAreNotQuantisedStayFloats) {
  Checkpoint checkpoint = fixture_checkpoint("llama_ct_fp8");
  std::vector<SourceTensor> kept;
  for (SourceTensor tensor : checkpoint.tensors) {
    if (tensor.name.starts_with("model.layers.2.mlp.down_proj")) {
      if (tensor.name.ends_with("_scale")) continue;
      tensor.dtype = DType::kBF16;
    }
    kept.push_back(tensor);
  }
  checkpoint.tensors = kept;
  const CopyProgram program = program_of(checkpoint, "vllm", 2, 0);
  EXPECT_EQ(tensor_named(program, "model.layers.2.mlp.down_proj.weight").dtype, DType::kBF16);
  EXPECT_EQ(tensor_named(program, "model.layers.1.mlp.down_proj.weight").dtype, DType::kF8E4M3);
}

}  // namespace
}  // namespace preload::test
