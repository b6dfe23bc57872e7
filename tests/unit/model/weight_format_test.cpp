// SPDX-License-Identifier: Apache-2.0
#include "model/weight_format.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

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
             parse_model_spec(R"({"quantization_config": )" + quantization_config + "}", ""), {})
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

// Mixtral whose experts are F8_E4M3 with one scale for each weight and, when static, its input.
Checkpoint tensor_fp8_experts(const std::string& quantization_config, bool fixed) {
  Checkpoint checkpoint = fixture_checkpoint("mixtral");
  checkpoint.config_json.insert(1, "\"quantization_config\": " + quantization_config + ", ");
  std::vector<Stored> tensors;
  for (const SourceTensor& tensor : checkpoint.tensors) {
    const bool expert = tensor.name.find(".experts.") != std::string::npos;
    tensors.push_back({tensor.name, expert ? DType::kF8E4M3 : tensor.dtype, tensor.shape});
    if (!expert) continue;
    const std::string at = tensor.name.substr(0, tensor.name.size() - 6);
    tensors.push_back({at + "weight_scale", DType::kF32, {}});
    if (fixed) tensors.push_back({at + "input_scale", DType::kF32, {}});
  }
  return make_checkpoint(checkpoint.config_json, tensors);
}

const std::string kModelOpt = R"({"quant_method": "modelopt", "quant_algo": "FP8",
                                  "kv_cache_scheme": {"type": "float", "num_bits": 8}})";

TEST(WeightFormat, ScalesOfWholeExpertWeightsAreOneElementEach) {
  const std::string block = "model.layers.0.block_sparse_moe.experts.";
  const std::string at = block + "routed_experts.";
  Checkpoint checkpoint = tensor_fp8_experts(kModelOpt, true);
  leave_as_float(checkpoint, "exclude_modules", "*.self_attn.*");
  const auto experts = static_cast<std::int64_t>(
      std::ranges::count_if(checkpoint.tensors, [&](const SourceTensor& tensor) {
        return tensor.name.starts_with(block) && tensor.name.ends_with(".w1.weight");
      }));
  const CopyProgram program = program_of(checkpoint, "vllm", 2, 1);
  const std::vector<Bytes> values = execute(program, checkpoint);
  const auto bytes_of = [&](const std::string& name) {
    const auto found = std::ranges::find(program.tensors, name, &TargetTensor::name);
    return values.at(static_cast<std::size_t>(found - program.tensors.begin()));
  };
  const auto expected = [&](const std::vector<std::string>& weights, const char* scale) {
    Bytes out;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      for (const std::string& weight : weights) {
        const std::string name = block + std::to_string(expert) + "." + weight + "." + scale;
        const Bytes one =
            rule_bytes(*std::ranges::find(checkpoint.tensors, name, &SourceTensor::name));
        out.insert(out.end(), one.begin(), one.end());
      }
    }
    return out;
  };
  EXPECT_EQ(tensor_named(program, at + "w13_weight_scale").shape, (Dims{experts, 2}));
  EXPECT_EQ(bytes_of(at + "w13_weight_scale"), expected({"w1", "w3"}, "weight_scale"));
  EXPECT_EQ(tensor_named(program, at + "w2_weight_scale").shape, Dims{experts});
  EXPECT_EQ(bytes_of(at + "w2_weight_scale"), expected({"w2"}, "weight_scale"));
  EXPECT_EQ(tensor_named(program, at + "w13_input_scale").shape, Dims{experts});
  EXPECT_EQ(bytes_of(at + "w13_input_scale"), expected({"w3"}, "input_scale"))
      << "one for gate and up, that which the engine loads last";
  EXPECT_EQ(tensor_named(program, at + "w2_input_scale").shape, Dims{experts});
  EXPECT_EQ(bytes_of(at + "w2_input_scale"), expected({"w2"}, "input_scale"));
  const CopyProgram stored = program_of(checkpoint, "hf", 2, 1);
  EXPECT_EQ(stored.tensors.size(), checkpoint.tensors.size());
  EXPECT_EQ(tensor_named(stored, block + "0.w1.input_scale").shape, Dims{});
  // Inputs scaled at run time have no such parameters.
  const CopyProgram dynamic =
      program_of(tensor_fp8_experts(
                     R"({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]})", false),
                 "vllm", 1, 0);
  EXPECT_EQ(tensor_named(dynamic, at + "w13_weight_scale").shape, (Dims{experts, 2}));
  EXPECT_THROW(tensor_named(dynamic, at + "w13_input_scale"), std::out_of_range);
}

TEST(WeightFormat, ModelOptIsUnderstoodInBothOfItsForms) {
  const std::string in_its_own_file = R"({"producer": {"name": "modelopt"}, "quantization":
      {"quant_algo": "fp8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}})";
  for (const std::string& config : {kModelOpt, in_its_own_file}) {
    const CopyProgram program = program_of(tensor_fp8(config, true, {}), "vllm", 2, 0);
    const std::string at = "model.layers.0.";
    EXPECT_EQ(tensor_named(program, at + "self_attn.qkv_proj.weight_scale").shape, Dims{3});
    EXPECT_EQ(tensor_named(program, at + "mlp.gate_up_proj.input_scale").shape, Dims{2});
    EXPECT_EQ(tensor_named(program, at + "self_attn.attn.k_scale").fill, -1.0);
  }
  EXPECT_THAT(refusal(tensor_fp8(kModelOpt, false, {}), "vllm", 1),
              HasSubstr("q_proj.input_scale"));
  EXPECT_THAT(refused_format(R"({"quant_method": "modelopt", "quant_algo": "MXFP8"})"),
              HasSubstr("MXFP8"));
}

TEST(WeightFormat, Nvfp4IsServedAsStoredAndRefusedElsewhere) {
  const Checkpoint checkpoint =
      tensor_fp8(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})", true, {});
  EXPECT_EQ(program_of(checkpoint, "hf", 1, 0).tensors.size(), checkpoint.tensors.size());
  EXPECT_THAT(refusal(checkpoint, "vllm", 1), AllOf(HasSubstr("NVFP4"), HasSubstr("--layout hf")));
  EXPECT_THAT(refusal(checkpoint, "hf", 2), AllOf(HasSubstr("NVFP4"), HasSubstr("both at 1")));
}

// A Llama in FP8 with scales of its KV cache under `names` in every layer.
Checkpoint with_kv_scales(const std::string& config, const std::vector<std::string>& names) {
  const Checkpoint checkpoint = tensor_fp8(config, false, {});
  std::vector<Stored> tensors;
  for (const SourceTensor& tensor : checkpoint.tensors) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    for (const std::string& name : names) tensors.push_back({layer + name, DType::kF32, {1}});
  }
  return make_checkpoint(checkpoint.config_json, tensors);
}

TEST(WeightFormat, StoredScalesOfTheKvCacheArePrivate) {
  const std::pair<const char*, const char*> names[] = {
      {"self_attn.k_scale", "self_attn.v_scale"},
      {"self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"},
      {"self_attn.attn.k_scale", "self_attn.attn.v_scale"},
      {"self_attn.qkv_proj.k_scale", "self_attn.qkv_proj.v_scale"},
  };
  for (const auto& [k, v] : names) {
    SCOPED_TRACE(k);
    const Checkpoint checkpoint = with_kv_scales(R"({"quant_method": "fp8"})", {k, v});
    const CopyProgram program = program_of(checkpoint, "vllm", 2, 1);
    const std::string layer = "model.layers.1.";
    for (const auto& [target, source] : {std::pair{"k_scale", k}, std::pair{"v_scale", v}}) {
      const TargetTensor& scale = tensor_named(program, layer + "self_attn.attn." + target);
      EXPECT_EQ(scale.cls, TensorClass::kPrivate);
      EXPECT_EQ(scale.shape, Dims{});
      EXPECT_EQ(scale.dtype, DType::kBF16) << "vLLM makes them in the model's type";
      EXPECT_EQ(scale.fill, std::nullopt);
      ASSERT_EQ(scale.moves.size(), 1U);
      EXPECT_EQ(checkpoint.tensors[scale.moves[0].source].name, layer + source);
    }
    EXPECT_EQ(tensor_named(program, layer + "self_attn.attn.q_scale").fill, -1.0);
    const CopyProgram stored = program_of(checkpoint, "hf", 2, 1);
    EXPECT_EQ(tensor_named(stored, layer + k).shape, Dims{1});
    EXPECT_EQ(tensor_named(stored, layer + k).dtype, DType::kF32);
    EXPECT_EQ(stored.tensors.size(), checkpoint.tensors.size());
  }
}

TEST(WeightFormat, TheOlderScaleOfKeysAndValuesIsThatOfTheKeys) {
  const Checkpoint checkpoint =
      with_kv_scales(R"({"quant_method": "fp8"})", {"self_attn.kv_scale"});
  const CopyProgram program = program_of(checkpoint, "vllm", 1, 0);
  EXPECT_EQ(tensor_named(program, "model.layers.0.self_attn.attn.k_scale").moves.size(), 1U);
  EXPECT_EQ(tensor_named(program, "model.layers.0.self_attn.attn.v_scale").fill, -1.0);
}

TEST(WeightFormat, CompressedTensorsKeepTheirKvScalesInFloat32) {
  const std::string config = R"({"quant_method": "compressed-tensors",
      "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true},
      "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
                              "input_activations": {"dynamic": true}}}})";
  const CopyProgram program =
      program_of(with_kv_scales(config, {"self_attn.k_scale", "self_attn.v_scale"}), "vllm", 1, 0);
  const TargetTensor& scale = tensor_named(program, "model.layers.0.self_attn.attn.k_scale");
  EXPECT_EQ(scale.shape, Dims{1});
  EXPECT_EQ(scale.dtype, DType::kF32);
  EXPECT_EQ(scale.cls, TensorClass::kPrivate);
  std::string by_head = config;
  by_head.replace(by_head.find(R"("tensor")"), 8, R"("attn_head")");
  EXPECT_THAT(refused_format(by_head), HasSubstr("kv_cache_scheme"));
}

TEST(WeightFormat, KvScalesBesideFloatWeightsAreNoneOfTheEngines) {
  std::vector<Stored> tensors = llama_tensors({});
  const std::string name = "model.layers.0.self_attn.k_scale";
  tensors.push_back({name, DType::kF32, {}});
  const Checkpoint checkpoint = make_checkpoint(llama_config({}), tensors);
  const CopyProgram program = program_of(checkpoint, "vllm", 1, 0);
  ASSERT_EQ(program.left_alone.size(), 1U);
  EXPECT_THAT(program.left_alone[0].reason, HasSubstr("no such parameter"));
  EXPECT_EQ(tensor_named(program_of(checkpoint, "hf", 2, 0), name).moves.size(), 1U);
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
  leave_as_float(checkpoint, "ignore", "model.layers.2.mlp.down_proj");
  const CopyProgram program = program_of(checkpoint, "vllm", 2, 0);
  EXPECT_EQ(tensor_named(program, "model.layers.2.mlp.down_proj.weight").dtype, DType::kBF16);
  EXPECT_EQ(tensor_named(program, "model.layers.1.mlp.down_proj.weight").dtype, DType::kF8E4M3);
}

}  // namespace
}  // namespace preload::test
