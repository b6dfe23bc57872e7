// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "model/layout.hpp"
#include "plan/key.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

const std::map<std::string, DType> kDtypes = {
    {"float16", DType::kF16}, {"bfloat16", DType::kBF16}, {"float32", DType::kF32}};

// "gpt_oss.float16.json": what from_pretrained(dtype="float16") of transformers 5.19.0 made of the
// checkpoint gpt_oss; without a type, of dtype="auto".
struct Recording {
  std::string family;
  std::optional<DType> dtype;
  ordered_json tensors;
};

std::vector<Recording> recordings() {
  std::vector<Recording> found;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PRELOAD_FIXTURES) +
                                                               "/transformers-5.19.0")) {
    std::string family = entry.path().stem().string();
    Recording& recording = found.emplace_back();
    if (const std::size_t dot = family.find('.'); dot != std::string::npos) {
      recording.dtype = kDtypes.at(family.substr(dot + 1));
      family.resize(dot);
    }
    recording.family = family;
    std::ifstream in(entry.path());
    recording.tensors = ordered_json::parse(in);
  }
  return found;
}

// Buffers that transformers computes and no checkpoint holds.
bool is_computed(const std::string& name, const ordered_json& entry) {
  if (entry.at(0) != "buffer") return false;
  return name.ends_with("inv_freq") || name.ends_with(".embed_scale") ||
         name.ends_with(".position_ids");
}

std::string digest(const Bytes& bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return sha256_hex(text).substr(0, 32);
}

CopyProgram program_of(const Checkpoint& checkpoint, std::optional<DType> dtype,
                       const ParallelSizes& sizes = {}, int rank = 0) {
  LayoutRequest request;
  request.layout = "transformers";
  request.dtype = dtype;
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, sizes,
                      coords_of(rank, sizes));
}

// Code and text of the refusal.
std::pair<Errc, std::string> refusal(const Checkpoint& checkpoint, const ParallelSizes& sizes) {
  try {
    program_of(checkpoint, std::nullopt, sizes);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {Errc::kInternal, "nothing was refused"};
}

TEST(TransformersLayout, HoldsEveryLoadedTensorThatTransformersHoldsByteForByte) {
  for (const Recording& recording : recordings()) {
    SCOPED_TRACE(recording.family);
    const Checkpoint checkpoint = fixture_checkpoint(recording.family);
    const CopyProgram program = program_of(checkpoint, recording.dtype);
    const std::vector<Bytes> bytes = execute(program, checkpoint);
    std::set<std::string> expected;
    for (const auto& [name, entry] : recording.tensors.items()) {
      if (is_computed(name, entry)) continue;
      expected.insert(name);
      const auto at = std::ranges::find(program.tensors, name, &TargetTensor::name);
      if (at == program.tensors.end()) continue;  // the comparison of names shows it
      EXPECT_EQ(at->dtype, kDtypes.at(entry.at(1))) << name;
      EXPECT_EQ(ordered_json(std::vector<std::int64_t>(at->shape.begin(), at->shape.end())),
                entry.at(2))
          << name;
      EXPECT_EQ(at->kind, entry.at(0) == "buffer" ? TensorKind::kBuffer : TensorKind::kParam)
          << name;
      EXPECT_EQ(digest(bytes[static_cast<std::size_t>(at - program.tensors.begin())]),
                entry.at(3).get<std::string>())
          << name;
    }
    std::set<std::string> held;
    for (const TargetTensor& tensor : program.tensors) held.insert(tensor.name);
    EXPECT_EQ(held, expected);
    EXPECT_EQ(program.tensors.size(), held.size()) << "a name is served twice";
  }
}

TEST(TransformersLayout, FixturesCoverEveryArchitectureWithRules) {
  std::set<std::string> covered;
  for (const Recording& recording : recordings()) {
    const Checkpoint checkpoint = fixture_checkpoint(recording.family);
    covered.insert(parse_model_spec(checkpoint.config_json, "").architecture);
  }
  for (const std::string& architecture : known_architectures()) {
    EXPECT_TRUE(covered.contains(architecture)) << architecture;
  }
}

TEST(TransformersLayout, ReplicasAreWhole) {
  for (const std::string family : {"llama", "mixtral", "deepseek_v3"}) {
    const Checkpoint checkpoint = fixture_checkpoint(family);
    const CopyProgram alone = program_of(checkpoint, std::nullopt);
    EXPECT_EQ(program_of(checkpoint, std::nullopt, {2, 1, 1}, 1), alone) << family;
  }
}

TEST(TransformersLayout, ReplicasHaveTheKeyOfARankAlone) {
  const Checkpoint checkpoint = fixture_checkpoint("qwen3_moe");
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
  LayoutRequest request;
  request.layout = "transformers";
  const auto key = [&](const ParallelSizes& sizes, int rank) {
    return key_fields(spec, request, program_of(checkpoint, std::nullopt, sizes, rank), sizes,
                      coords_of(rank, sizes), "id");
  };
  EXPECT_EQ(key({2, 1, 1}, 1), key({}, 0));
  EXPECT_EQ(key({}, 0).at("layout"), "transformers/1");
  EXPECT_EQ(key({}, 0).at("dtype"), "BF16");
}

TEST(TransformersLayout, RefusesToCutWithTheRemedyAndTheStatusOfAWrongUse) {
  struct Case {
    ParallelSizes sizes;
    std::string flag;
  };
  const Case cases[] = {{{1, 1, 2}, "--tensor-parallel-size 2"},
                        {{1, 2, 1}, "--pipeline-parallel-size 2"},
                        {{2, 1, 1, true}, "--enable-expert-parallel"}};
  for (const Case& c : cases) {
    const auto [code, text] = refusal(fixture_checkpoint("mixtral"), c.sizes);
    EXPECT_EQ(exit_status(code), 2);
    EXPECT_THAT(text, AllOf(HasSubstr(c.flag), HasSubstr("--layout vllm or hf")));
  }
}

TEST(TransformersLayout, RefusesWhatItCannotPromise) {
  EXPECT_THAT(
      refusal(fixture_checkpoint("qwen3_fp8"), {}).second,
      AllOf(HasSubstr("fp8"), HasSubstr("depends on the device"), HasSubstr("--layout hf")));
  const Checkpoint unknown =
      make_checkpoint(R"({"architectures": ["BertModel"]})", {{"w", DType::kF32, {4}}});
  EXPECT_THAT(refusal(unknown, {}).second, AllOf(HasSubstr("BertModel"), HasSubstr("--layout hf")));
}

// transformers' Mistral has no biases, whatever the config says; vLLM's has.
TEST(TransformersLayout, RefusesStoredTensorsThatItsModelHasNoPlaceFor) {
  LlamaSize size;
  nlohmann::json config = nlohmann::json::parse(llama_config(size));
  config["architectures"] = {"MistralForCausalLM"};
  config["attention_bias"] = true;
  std::vector<Stored> tensors = llama_tensors(size);
  for (int layer = 0; layer < size.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.";
    tensors.push_back({at + "q_proj.bias", DType::kBF16, {size.heads * size.head_dim}});
    for (const char* name : {"k_proj.bias", "v_proj.bias"}) {
      tensors.push_back({at + name, DType::kBF16, {size.kv_heads * size.head_dim}});
    }
    tensors.push_back({at + "o_proj.bias", DType::kBF16, {size.hidden}});
  }
  const Checkpoint checkpoint = make_checkpoint(config.dump(), tensors);
  EXPECT_THAT(refusal(checkpoint, {}).second,
              HasSubstr("\"model.layers.0.self_attn.q_proj.bias\""));
  LayoutRequest vllm;
  EXPECT_NO_THROW(
      make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), vllm, {}, {}));
}

TEST(TransformersLayout, TiedHeadsThatAreStoredAreTensorsOfTheirOwn) {
  LlamaSize size;
  size.tied = true;
  std::vector<Stored> tensors = llama_tensors(size);
  tensors.push_back({"lm_head.weight", DType::kBF16, {size.vocab, size.hidden}});
  const Checkpoint stored = make_checkpoint(llama_config(size), tensors);
  EXPECT_FALSE(tensor_named(program_of(stored, std::nullopt), "lm_head.weight").alias);
  EXPECT_TRUE(
      tensor_named(program_of(llama_checkpoint(size), std::nullopt), "lm_head.weight").alias);
}

TEST(TransformersLayout, SaysWhatItFits) {
  const auto attributes = nlohmann::json::parse(
      program_of(fixture_checkpoint("gemma3_mm"), std::nullopt).attributes_json);
  EXPECT_EQ(attributes.at("layout"), "transformers");
  EXPECT_EQ(attributes.at("layout_version"), 1);
  EXPECT_EQ(attributes.at("fits"), "transformers 5");
  EXPECT_EQ(attributes.at("dtype"), "BF16");
  EXPECT_EQ(attributes.at("served_whole"),
            (nlohmann::json{"multi_modal_projector.", "vision_tower.vision_model."}));
}

}  // namespace
}  // namespace preload::test
