// SPDX-License-Identifier: Apache-2.0
#include "model/float_modules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

FloatModules modules(const std::string& quantization_config) {
  return FloatModules(
      parse_model_spec(R"({"quantization_config": )" + quantization_config + "}", ""));
}

std::string refusal(const Checkpoint& checkpoint) {
  try {
    make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), {}, {1, 1, 1},
                 coords_of(0, {1, 1, 1}));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    return error.what();
  }
  return "nothing was refused";
}

// The weight as a float, without its scale.
Checkpoint with_float(Checkpoint checkpoint, const std::string& weight) {
  std::erase_if(checkpoint.tensors, [&](const SourceTensor& tensor) {
    return tensor.name.starts_with(weight + "_scale");
  });
  for (SourceTensor& tensor : checkpoint.tensors) {
    if (tensor.name == weight) tensor.dtype = DType::kBF16;
  }
  return checkpoint;
}

TEST(FloatModules, AreNamedInFullByPatternsAndByGlobs) {
  const FloatModules fp8 = modules(
      R"({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.1.mlp.up_proj"]})");
  EXPECT_TRUE(fp8.names("model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(fp8.names("model.layers.11.mlp.up_proj"));
  EXPECT_TRUE(modules(R"({"quant_method": "compressed-tensors", "ignore": ["re:.*gate$"]})")
                  .names("model.layers.0.mlp.gate"));
  EXPECT_FALSE(modules(R"({"quant_method": "compressed-tensors", "ignore": ["re:gate$"]})")
                   .names("model.layers.0.mlp.gate"))
      << "patterns begin where the name does";
  EXPECT_TRUE(modules(R"({"quant_method": "modelopt", "exclude_modules": ["*self_attn*"]})")
                  .names("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(modules(R"({"quant_method": "fp8", "modules_to_not_convert": ["gate"]})")
                  .may_name("model.layers.0.mlp.gate"));
}

TEST(FloatModules, ListsThatAreNoneAreRefused) {
  for (const char* list : {"5", "\"lm_head\"", "[7]", "{}"}) {
    const std::string config =
        std::string(R"({"quant_method": "fp8", "modules_to_not_convert": )") + list + "}";
    EXPECT_THROW(modules(config), Error) << list;
  }
  EXPECT_THROW(modules(R"({"quant_method": "compressed-tensors", "ignore": ["re:("]})"), Error);
}

TEST(FloatModules, FloatsThatTheConfigCallsQuantisedAreRefusedByName) {
  const std::string weight = "model.layers.1.mlp.down_proj.weight";
  Checkpoint checkpoint = with_float(fixture_checkpoint("qwen3_fp8"), weight);
  EXPECT_THAT(refusal(checkpoint), AllOf(HasSubstr(weight), HasSubstr("modules_to_not_convert"),
                                         HasSubstr("--hf-overrides"), Not(HasSubstr("layers.0."))));
  leave_as_float(checkpoint, "modules_to_not_convert", "model.layers.1.mlp.down_proj");
  EXPECT_EQ(refusal(checkpoint), "nothing was refused");
}

TEST(FloatModules, WeightsThatTheConfigLeavesAsFloatsAreNotQuantised) {
  Checkpoint checkpoint = fixture_checkpoint("qwen3_fp8");
  leave_as_float(checkpoint, "modules_to_not_convert", "model.layers.1.mlp.up_proj");
  EXPECT_THAT(refusal(checkpoint),
              AllOf(HasSubstr("model.layers.1.mlp.up_proj.weight"),
                    HasSubstr("modules_to_not_convert"), Not(HasSubstr("gate_proj"))));
}

TEST(FloatModules, AConfigAloneQuantisesNothing) {
  Checkpoint checkpoint = fixture_checkpoint("llama");
  std::string& config = checkpoint.config_json;
  config.insert(
      config.find('{') + 1,
      R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},)");
  EXPECT_THAT(refusal(checkpoint), HasSubstr("stored as floats without a scale"));
}

}  // namespace
}  // namespace preload::test
