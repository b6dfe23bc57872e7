// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The text of the refusal, which must be the model's: exit status 3.
std::string refusal(const Checkpoint& checkpoint, const LayoutRequest& request,
                    const ParallelSizes& sizes) {
  try {
    make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, sizes,
                 coords_of(0, sizes));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    EXPECT_EQ(exit_status(error.code()), 3);
    return error.what();
  }
  return "nothing was refused";
}

LayoutRequest layout(const std::string& name) {
  LayoutRequest request;
  request.layout = name;
  return request;
}

Checkpoint without(const std::string& name, const LlamaSize& size = {}) {
  std::vector<Stored> tensors = llama_tensors(size);
  std::erase_if(tensors, [&](const Stored& tensor) { return tensor.name == name; });
  return make_checkpoint(llama_config(size), tensors);
}

TEST(Refusals, NameEveryTensorThatNoRuleUses) {
  std::vector<Stored> tensors = llama_tensors({});
  tensors.push_back({"model.layers.0.mlp.gate_proj.weight_scale", DType::kF32, {1}});
  tensors.push_back({"model.layers.2.input_layernorm.weight", DType::kBF16, {32}});
  const Checkpoint checkpoint = make_checkpoint(llama_config({}), tensors);
  for (const std::string name : {"vllm", "hf"}) {
    EXPECT_THAT(refusal(checkpoint, layout(name), {1, 1, 1}),
                AllOf(HasSubstr("\"model.layers.0.mlp.gate_proj.weight_scale\""),
                      HasSubstr("\"model.layers.2.input_layernorm.weight\""),
                      HasSubstr("--ignore-tensor"), HasSubstr("LlamaForCausalLM")));
  }
}

TEST(Refusals, NameTensorsThatAreMissing) {
  EXPECT_THAT(refusal(without("model.layers.1.mlp.up_proj.weight"), layout("vllm"), {1, 1, 1}),
              AllOf(HasSubstr("1 tensor missing: \"model.layers.1.mlp.up_proj.weight\""),
                    HasSubstr("complete the checkpoint")));
}

TEST(Refusals, ComeOnAllRanksAlikeAlsoForOtherStages) {
  const Checkpoint checkpoint = without("model.layers.1.mlp.up_proj.weight");
  const ParallelSizes sizes{1, 2, 1};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THROW(make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""),
                              layout("vllm"), sizes, coords_of(rank, sizes)),
                 Error)
        << rank;
  }
}

TEST(Refusals, UntiedModelWithoutAHeadSaysHowToTieIt) {
  EXPECT_THAT(refusal(without("lm_head.weight"), layout("hf"), {1, 1, 1}),
              AllOf(HasSubstr("\"lm_head.weight\""), HasSubstr("tie_word_embeddings"),
                    HasSubstr("--hf-overrides")));
}

TEST(Refusals, ShapesThatContradictTheConfigAreNamedWithBoth) {
  LlamaSize size;
  std::vector<Stored> tensors = llama_tensors(size);
  size.intermediate = 64;
  size.kv_heads = 4;
  const Checkpoint checkpoint = make_checkpoint(llama_config(size), tensors);
  EXPECT_THAT(refusal(checkpoint, layout("vllm"), {1, 1, 1}),
              AllOf(HasSubstr("model.layers.0.mlp.down_proj.weight is [32, 48], the config makes "
                              "it [32, 64] (hidden_size, intermediate_size)"),
                    HasSubstr("model.layers.1.self_attn.v_proj.weight is [16, 32], the config "
                              "makes it [32, 32]"),
                    Not(HasSubstr("q_proj"))));
}

TEST(Refusals, AllProblemsComeInOneMessage) {
  std::vector<Stored> tensors = llama_tensors({});
  tensors[1].shape = {31};             // model.layers.0.input_layernorm.weight
  tensors[2].name = "something.else";  // was model.layers.0.mlp.down_proj.weight
  const Checkpoint checkpoint = make_checkpoint(llama_config({}), tensors);
  EXPECT_THAT(refusal(checkpoint, layout("vllm"), {1, 1, 3}),
              AllOf(HasSubstr("model.layers.0.input_layernorm.weight is [31]"),
                    HasSubstr("missing: \"model.layers.0.mlp.down_proj.weight\""),
                    HasSubstr("\"something.else\""), HasSubstr("num_attention_heads 4")));
}

TEST(Refusals, SizesThatTensorParallelismCannotCut) {
  struct Case {
    LlamaSize size;
    int tp;
    std::string text;
  };
  const Case cases[] = {
      {{.heads = 6, .kv_heads = 2}, 4, "num_attention_heads 6 is not divisible"},
      {{.heads = 6, .kv_heads = 3}, 2, "num_key_value_heads 3 and --tensor-parallel-size 2"},
      {{.heads = 8, .kv_heads = 3}, 4, "num_key_value_heads 3 and --tensor-parallel-size 4"},
      {{.intermediate = 50}, 4, "intermediate_size 50 is not divisible"},
      {{.heads = 6, .kv_heads = 6, .vocab = 100}, 3, "vocab_size 100, padded to 128"},
  };
  for (const Case& c : cases) {
    for (const std::string name : {"vllm", "hf"}) {
      EXPECT_THAT(refusal(llama_checkpoint(c.size), layout(name), {1, 1, c.tp}), HasSubstr(c.text));
    }
  }
}

TEST(Refusals, FewerLayersThanStages) {
  EXPECT_THAT(refusal(llama_checkpoint({}), layout("vllm"), {1, 3, 1}),
              AllOf(HasSubstr("num_hidden_layers 2"), HasSubstr("--pipeline-parallel-size 3")));
}

TEST(Refusals, UnknownArchitecturesListTheKnownOnes) {
  const Checkpoint checkpoint =
      make_checkpoint(R"({"architectures": ["BertModel"]})", {{"w", DType::kF32, {4, 4}}});
  const auto lists_all =
      AllOf(HasSubstr("BertModel"), HasSubstr("LlamaForCausalLM"), HasSubstr("MistralForCausalLM"),
            HasSubstr("Qwen2ForCausalLM"), HasSubstr("Qwen3ForCausalLM"), HasSubstr("--layout hf"));
  EXPECT_THAT(refusal(checkpoint, layout("vllm"), {1, 1, 1}), lists_all);
  EXPECT_THAT(refusal(checkpoint, layout("hf"), {1, 1, 2}), lists_all);
  EXPECT_THAT(refusal(checkpoint, layout("hf"), {1, 2, 1}), lists_all);
  EXPECT_THAT(refusal(make_checkpoint("{}", {{"w", DType::kF32, {4}}}), layout("vllm"), {1, 1, 1}),
              HasSubstr("states no architecture"));
}

TEST(Refusals, CheckpointsOfAFormatThatIsNotUnderstoodAreServedAsStoredAlone) {
  std::string config = llama_config({});
  config.insert(1, R"("quantization_config": {"quant_method": "awq", "bits": 4}, )");
  const Checkpoint checkpoint = make_checkpoint(config, llama_tensors({}));
  EXPECT_THAT(refusal(checkpoint, layout("vllm"), {1, 1, 1}),
              AllOf(HasSubstr("quantization_config says awq"), HasSubstr("not built"),
                    HasSubstr("--layout hf")));
  EXPECT_THAT(refusal(checkpoint, layout("hf"), {1, 1, 2}), HasSubstr("not built"));
  const ParallelSizes sizes{1, 1, 1};
  EXPECT_EQ(make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), layout("hf"),
                         sizes, coords_of(0, sizes))
                .tensors.size(),
            checkpoint.tensors.size());
}

TEST(Refusals, IgnorePatternsThatMatchWhatIsNeededOrNothing) {
  LayoutRequest request = layout("vllm");
  request.ignore = {"*.q_proj.weight"};
  EXPECT_THAT(refusal(llama_checkpoint({}), request, {1, 1, 1}),
              AllOf(HasSubstr("--ignore-tensor matches what the model needs"),
                    HasSubstr("\"model.layers.0.self_attn.q_proj.weight\"")));
  request.ignore = {"vision.*"};
  EXPECT_THAT(refusal(llama_checkpoint({}), request, {1, 1, 1}),
              HasSubstr("--ignore-tensor \"vision.*\" matches no tensor"));
}

TEST(Refusals, IgnoredTensorsAreLeftAloneWithThePattern) {
  std::vector<Stored> tensors = llama_tensors({});
  tensors.push_back({"vision.patch.weight", DType::kBF16, {3}});
  const Checkpoint checkpoint = make_checkpoint(llama_config({}), tensors);
  LayoutRequest request = layout("vllm");
  request.ignore = {"vision.*"};
  const ParallelSizes sizes{1, 1, 1};
  const CopyProgram program = make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""),
                                           request, sizes, coords_of(0, sizes));
  ASSERT_EQ(program.left_alone.size(), 1U);
  EXPECT_EQ(program.left_alone[0].reason, "--ignore-tensor vision.*");
}

TEST(Refusals, IntegersWhereTheEngineHoldsFloats) {
  std::vector<Stored> tensors = llama_tensors({});
  tensors[2].dtype = DType::kI8;
  EXPECT_THAT(refusal(make_checkpoint(llama_config({}), tensors), layout("vllm"), {1, 1, 1}),
              HasSubstr("model.layers.0.mlp.down_proj.weight is stored as I8"));
}

TEST(Refusals, ConfigsWithoutTheNumbers) {
  EXPECT_THAT(
      refusal(make_checkpoint(R"({"architectures": ["LlamaForCausalLM"]})", llama_tensors({})),
              layout("vllm"), {1, 1, 1}),
      AllOf(HasSubstr("\"hidden_size\""), HasSubstr("\"num_attention_heads\""),
            HasSubstr("\"vocab_size\"")));
}

}  // namespace
}  // namespace preload::test
