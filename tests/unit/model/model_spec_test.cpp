// SPDX-License-Identifier: Apache-2.0
#include "model/model_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& config, const std::string& overrides = "") {
  try {
    parse_model_spec(config, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    return error.what();
  }
  return "nothing was refused";
}

TEST(ModelSpec, ReadsWhatShardingNeeds) {
  const ModelSpec spec = parse_model_spec(
      R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 128,
          "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 48, "vocab_size": 1003, "dtype": "float16",
          "tie_word_embeddings": true, "attention_bias": true})",
      "");
  EXPECT_EQ(spec.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(spec.model_type, "qwen3");
  EXPECT_EQ(spec.hidden_size, 128);
  EXPECT_EQ(spec.intermediate_size, 192);
  EXPECT_EQ(spec.num_hidden_layers, 4);
  EXPECT_EQ(spec.num_attention_heads, 4);
  EXPECT_EQ(spec.num_key_value_heads, 2);
  EXPECT_EQ(spec.head_dim, 48);
  EXPECT_EQ(spec.vocab_size, 1003);
  EXPECT_EQ(spec.dtype, DType::kF16);
  EXPECT_TRUE(spec.tie_word_embeddings);
  EXPECT_TRUE(spec.attention_bias);
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_FALSE(spec.mlp_bias);
}

TEST(ModelSpec, DerivesHeadDimAndKvHeadsWhereAbsentOrNull) {
  const ModelSpec spec = parse_model_spec(
      R"({"hidden_size": 96, "num_attention_heads": 6, "head_dim": null, "torch_dtype": "bfloat16"})",
      "");
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_EQ(spec.num_key_value_heads, 6);
  EXPECT_EQ(spec.dtype, DType::kBF16);
}

TEST(ModelSpec, QkvBiasOverrulesAttentionBiasForQueryKeyAndValueAlone) {
  const ModelSpec spec = parse_model_spec(R"({"bias": true, "qkv_bias": false})", "");
  EXPECT_TRUE(spec.attention_bias);
  EXPECT_FALSE(spec.qkv_bias);
}

TEST(ModelSpec, OverridesAreLaidOverTheConfigAlsoWithinObjects) {
  const ModelSpec spec = parse_model_spec(
      R"({"vocab_size": 10, "hidden_size": 8,
          "quantization_config": {"quant_method": "fp8", "bits": 8}})",
      R"({"vocab_size": 20, "quantization_config": {"quant_method": "awq"}})");
  EXPECT_EQ(spec.vocab_size, 20);
  EXPECT_EQ(spec.hidden_size, 8);
  EXPECT_EQ(spec.quantization, "awq");
  EXPECT_EQ(parse_model_spec(R"({"quantization_config": {"quant_method": "fp8"}})",
                             R"({"quantization_config": null})")
                .quantization,
            "");
}

TEST(ModelSpec, TakesFromTextConfigWhatTheTopLevelDoesNotState) {
  const ModelSpec spec = parse_model_spec(
      R"({"vocab_size": 7, "text_config": {"vocab_size": 9, "hidden_size": 64,
          "architectures": ["LlamaForCausalLM"]}})",
      "");
  EXPECT_EQ(spec.vocab_size, 7);
  EXPECT_EQ(spec.hidden_size, 64);
  EXPECT_EQ(spec.architecture, "");
}

TEST(ModelSpec, MalformedJsonIsRefusedWithThePosition) {
  EXPECT_THAT(refusal("{\"hidden_size\": 12,,}"),
              AllOf(HasSubstr("config.json"), HasSubstr("line 1, column 20")));
  EXPECT_THAT(refusal("[]"), HasSubstr("config.json must be a JSON object"));
  EXPECT_THAT(refusal("{}", "[1]"), HasSubstr("--hf-overrides must be a JSON object"));
}

TEST(ModelSpec, FieldsOfWrongTypeAreNamed) {
  const auto llama = [](const std::string& field) {
    return R"({"architectures": ["LlamaForCausalLM"], )" + field + "}";
  };
  EXPECT_THAT(refusal(llama(R"("hidden_size": "128")")),
              AllOf(HasSubstr("\"hidden_size\""), HasSubstr("whole number")));
  EXPECT_THAT(refusal(llama(R"("num_hidden_layers": -1)")), HasSubstr("\"num_hidden_layers\""));
  EXPECT_THAT(refusal(llama(R"("vocab_size": 1e300)")), HasSubstr("\"vocab_size\""));
  EXPECT_THAT(refusal(llama(R"("tie_word_embeddings": 1)")), HasSubstr("true or false"));
  EXPECT_THAT(refusal(llama(R"("dtype": "float3")")), HasSubstr("float3"));
  EXPECT_THAT(refusal(R"({"architectures": "LlamaForCausalLM"})"), HasSubstr("list of names"));
  EXPECT_THAT(refusal(llama(R"("text_config": [1])")),
              AllOf(HasSubstr("\"text_config\""), HasSubstr("an object")));
}

TEST(ModelSpec, NumbersOfArchitecturesWithoutRulesAreNotNeeded) {
  const ModelSpec spec = parse_model_spec(
      R"({"architectures": ["OpenELMForCausalLM"], "num_attention_heads": [12, 16],
          "dtype": "float8_e4m3fn"})",
      "");
  EXPECT_EQ(spec.num_attention_heads, 0);
  EXPECT_EQ(spec.dtype, std::nullopt);
}

}  // namespace
}  // namespace preload::test
