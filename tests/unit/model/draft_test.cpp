// SPDX-License-Identifier: Apache-2.0
#include "model/draft.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::int64_t kVocab = 1003;  // of every fixture

LayoutRequest draft_request(DraftMethod method, const std::string& layout = "vllm") {
  LayoutRequest request;
  request.layout = layout;
  request.draft = DraftRequest{method, kVocab};
  return request;
}

CopyProgram program_of(const Checkpoint& checkpoint, const LayoutRequest& request,
                       const ParallelSizes& sizes = {}, int global = 0) {
  return make_program(checkpoint, layout_spec(checkpoint, request, ""), request, sizes,
                      coords_of(global, sizes));
}

json attributes_of(const std::string& family, DraftMethod method) {
  return json::parse(program_of(fixture_checkpoint(family), draft_request(method)).attributes_json);
}

const TargetTensor* find(const CopyProgram& program, const std::string& name) {
  const auto at = std::ranges::find(program.tensors, name, &TargetTensor::name);
  return at == program.tensors.end() ? nullptr : &*at;
}

void without(Checkpoint& checkpoint, const std::string& part) {
  std::erase_if(checkpoint.tensors, [&](const SourceTensor& tensor) {
    return tensor.name.find(part) != std::string::npos;
  });
}

void with_config(Checkpoint& checkpoint, const json& fields) {
  json config = json::parse(checkpoint.config_json);
  config.update(fields);
  checkpoint.config_json = config.dump();
}

void expect_refused(const Checkpoint& checkpoint, const LayoutRequest& request,
                    const std::string& reason, const ParallelSizes& sizes = {}) {
  try {
    program_of(checkpoint, request, sizes);
    ADD_FAILURE() << "taken, not: " << reason;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    EXPECT_THAT(error.what(), HasSubstr(reason));
  }
}

TEST(Draft, SaysWhichOfItsEndsAreItsOwn) {
  const json eagle = attributes_of("llama_eagle", DraftMethod::kEagle);
  EXPECT_EQ(eagle["has_own_embed_tokens"], true);
  EXPECT_EQ(eagle["has_own_lm_head"], false);
  const json eagle3 = attributes_of("llama_eagle3", DraftMethod::kEagle3);
  EXPECT_EQ(eagle3["has_own_embed_tokens"], true);
  EXPECT_EQ(eagle3["has_own_lm_head"], true);
  const json shared = attributes_of("llama_eagle3_shared", DraftMethod::kEagle3);
  EXPECT_EQ(shared["has_own_embed_tokens"], false);
  EXPECT_EQ(shared["has_own_lm_head"], true);
  const json mtp = attributes_of("deepseek_v3_mtp", DraftMethod::kMtp);
  EXPECT_EQ(mtp["has_own_embed_tokens"], true);
  EXPECT_EQ(mtp["has_own_lm_head"], true);
  EXPECT_EQ(mtp["architecture"], "DeepSeekMTPModel");
  EXPECT_EQ(mtp["first_layer"], 4);
  EXPECT_EQ(mtp["layers"], 1);
  const CopyProgram target = program_of(fixture_checkpoint("deepseek_v3_mtp"), {});
  EXPECT_FALSE(json::parse(target.attributes_json).contains("has_own_lm_head"));
  EXPECT_EQ(target.role, Role::kTarget);
}

TEST(Draft, IsARoleOfItsOwn) {
  const CopyProgram program =
      program_of(fixture_checkpoint("llama_eagle"), draft_request(DraftMethod::kEagle));
  EXPECT_EQ(program.role, Role::kDraft);
}

// With two ranks each holds half of the heads, of the wide first projection too, and half of each
// vocabulary, padded to a multiple of 64.
TEST(Draft, IsSharedByTheTargetsTensorParallelRanks) {
  const Checkpoint checkpoint = fixture_checkpoint("llama_eagle3");
  const LayoutRequest request = draft_request(DraftMethod::kEagle3);
  for (const int rank : {0, 1}) {
    const CopyProgram program = program_of(checkpoint, request, {1, 1, 2}, rank);
    EXPECT_EQ(find(program, "model.layers.0.self_attn.qkv_proj.weight")->shape, (Dims{128, 256}));
    EXPECT_EQ(find(program, "model.embed_tokens.weight")->shape, (Dims{512, 128}));
    EXPECT_EQ(find(program, "lm_head.weight")->shape, (Dims{256, 128}));
    EXPECT_EQ(find(program, "model.fc.weight")->shape, (Dims{128, 384}));
    EXPECT_EQ(find(program, "draft_id_to_target_id")->shape, (Dims{512}));
  }
  const CopyProgram second = program_of(checkpoint, request, {1, 1, 2}, 1);
  // Query heads 2 and 3 of 4, at 32 rows of 256 columns each.
  EXPECT_EQ(find(second, "model.layers.0.self_attn.qkv_proj.weight")->moves[0].source_offset,
            2 * 32 * 256);
  EXPECT_EQ(find(second, "lm_head.weight")->moves[0].source_offset, 256 * 128);
}

TEST(Draft, OfMtpLayersSpreadsTheirExperts) {
  ParallelSizes sizes{1, 1, 2};
  sizes.expert_parallel = true;
  const CopyProgram program =
      program_of(fixture_checkpoint("deepseek_v3_mtp"), draft_request(DraftMethod::kMtp), sizes, 1);
  EXPECT_EQ(find(program, "model.layers.4.mtp_block.mlp.experts.routed_experts.w13_weight")->shape,
            (Dims{4, 128, 128}));
}

TEST(Draft, KeepsStoredNamesInTheHfLayout) {
  const CopyProgram program =
      program_of(fixture_checkpoint("llama_eagle3"), draft_request(DraftMethod::kEagle3, "hf"));
  EXPECT_NE(find(program, "midlayer.self_attn.q_proj.weight"), nullptr);
  EXPECT_NE(find(program, "d2t"), nullptr);
  EXPECT_EQ(find(program, "d2t")->dtype, DType::kI64);
  EXPECT_EQ(find(program, "t2d"), nullptr);
  EXPECT_EQ(program.tensors.size(), 15U);
}

TEST(Draft, OfMtpLayersTakesWhatItsLayerLacksFromTheTarget) {
  Checkpoint checkpoint = fixture_checkpoint("deepseek_v3_mtp");
  const LayoutRequest request = draft_request(DraftMethod::kMtp);
  without(checkpoint, "layers.4.embed_tokens");
  without(checkpoint, "shared_head.head");
  const CopyProgram program = program_of(checkpoint, request);
  const TargetTensor* embedding = find(program, "model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(checkpoint.tensors[embedding->moves[0].source].name, "model.embed_tokens.weight");
  EXPECT_EQ(find(program, "model.layers.4.shared_head.head.weight"), nullptr);
  EXPECT_EQ(json::parse(program.attributes_json)["has_own_lm_head"], false);
}

TEST(Draft, LeavesTheTargetsTensorsAlone) {
  const Checkpoint checkpoint = fixture_checkpoint("deepseek_v3_mtp");
  const CopyProgram program = program_of(checkpoint, draft_request(DraftMethod::kMtp));
  for (const LeftAlone& left : program.left_alone) {
    EXPECT_EQ(left.reason, "of the target") << checkpoint.tensors[left.source].name;
    EXPECT_EQ(checkpoint.tensors[left.source].name.find("layers.4."), std::string::npos);
  }
  EXPECT_GT(program.left_alone.size(), 100U);
}

// DeepSeek-V3 as it is published: an MTP layer of the same block FP8 as the layers before it.
TEST(Draft, OfMtpLayersKeepsTheScalesOfItsBlock) {
  Checkpoint checkpoint = fixture_checkpoint("deepseek_v3_fp8");
  const std::vector<SourceTensor> stored = checkpoint.tensors;
  const auto add = [&](const std::string& name, DType dtype, const Dims& shape) {
    SourceTensor tensor = stored.front();
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.shape = shape;
    checkpoint.tensors.push_back(tensor);
  };
  const json config = json::parse(checkpoint.config_json);
  const std::int64_t last = config.at("num_hidden_layers").get<std::int64_t>() - 1;
  const std::int64_t hidden = config.at("hidden_size");
  const std::int64_t vocab = config.at("vocab_size");
  const std::string from = "model.layers." + std::to_string(last) + ".";
  const std::string to = "model.layers." + std::to_string(last + 1) + ".";
  for (const SourceTensor& tensor : stored) {
    if (!tensor.name.starts_with(from)) continue;
    add(to + tensor.name.substr(from.size()), tensor.dtype, tensor.shape);
  }
  for (const char* norm : {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"}) {
    add(to + norm, DType::kBF16, {hidden});
  }
  add(to + "eh_proj.weight", DType::kBF16, {hidden, 2 * hidden});
  add(to + "shared_head.head.weight", DType::kBF16, {vocab, hidden});
  add(to + "embed_tokens.weight", DType::kBF16, {vocab, hidden});
  with_config(checkpoint, {{"num_nextn_predict_layers", 1}});

  const CopyProgram target = program_of(checkpoint, {});
  const CopyProgram draft = program_of(checkpoint, draft_request(DraftMethod::kMtp));
  std::size_t scales = 0;
  std::size_t in_block = 0;
  for (const TargetTensor& tensor : target.tensors) {
    if (!tensor.name.starts_with(from)) continue;
    const std::string name = to + "mtp_block." + tensor.name.substr(from.size());
    const TargetTensor* twin = find(draft, name);
    ASSERT_NE(twin, nullptr) << name;
    EXPECT_EQ(twin->shape, tensor.shape) << name;
    EXPECT_EQ(twin->dtype, tensor.dtype) << name;
    EXPECT_EQ(twin->alias.has_value(), tensor.alias.has_value()) << name;
    ++in_block;
    if (name.ends_with("scale_inv")) ++scales;
  }
  EXPECT_GT(scales, 5U);
  EXPECT_EQ(draft.tensors.size(), in_block + 6);
  EXPECT_EQ(find(draft, to + "eh_proj.weight")->dtype, DType::kBF16);
}

TEST(Draft, LaterLayersOfEagleHaveAnInputNorm) {
  Checkpoint checkpoint = fixture_checkpoint("llama_eagle");
  with_config(checkpoint, {{"num_hidden_layers", 2}});
  expect_refused(checkpoint, draft_request(DraftMethod::kEagle), "layers.1.input_layernorm.weight");
  expect_refused(checkpoint, draft_request(DraftMethod::kEagle), "9 tensors missing");
}

TEST(Draft, ReadsWhatEagle3KeepsOneLevelDown) {
  Checkpoint checkpoint = fixture_checkpoint("llama_eagle3");
  with_config(checkpoint, {{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {1, 2}}}}});
  // Two states instead of three: fc has 256 columns.
  expect_refused(checkpoint, draft_request(DraftMethod::kEagle3),
                 "fc.weight is [128, 384], the config makes it [128, 256]");
  with_config(checkpoint, {{"eagle_config", {{"norm_before_fc", true}}}});
  expect_refused(checkpoint, draft_request(DraftMethod::kEagle3), "input_norm.weight");
}

TEST(Draft, RefusesWhatItsEngineWouldNotLoad) {
  Checkpoint checkpoint = fixture_checkpoint("llama_eagle3");
  LayoutRequest request = draft_request(DraftMethod::kEagle3);
  request.draft->target_vocab_size = 512;  // the draft's own: then it has no mapping
  expect_refused(checkpoint, request, "d2t");
  without(checkpoint, "midlayer.hidden_norm");
  expect_refused(checkpoint, draft_request(DraftMethod::kEagle3), "midlayer.hidden_norm.weight");
  Checkpoint plain = fixture_checkpoint("deepseek_v3_mtp");
  with_config(plain, {{"num_nextn_predict_layers", 0}});
  expect_refused(plain, draft_request(DraftMethod::kMtp), "no layers behind the model's last one");
}

TEST(Draft, HasToFitItsTarget) {
  ModelSpec target;
  target.hidden_size = 4096;
  ModelSpec draft = target;
  EXPECT_NO_THROW(check_draft(DraftMethod::kEagle, draft, target, "d"));
  draft.hidden_size = 2048;
  EXPECT_NO_THROW(check_draft(DraftMethod::kMtp, draft, target, "d"));
  try {
    check_draft(DraftMethod::kEagle3, draft, target, "/drafts/d");
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/drafts/d has a hidden_size of 2048, its target one of "
                                        "4096"));
  }
}

TEST(Draft, TakesTheTargetsType) {
  const Checkpoint target = llama_checkpoint({});  // BF16
  const ModelSpec spec = parse_model_spec(target.config_json, "");
  LayoutRequest draft = draft_request(DraftMethod::kEagle);
  follow_target(draft, target, spec, {});
  EXPECT_EQ(draft.dtype, DType::kBF16);
  EXPECT_EQ(draft.draft->target_vocab_size, spec.vocab_size);
  LayoutRequest wide;
  wide.dtype = DType::kF32;
  follow_target(draft, target, spec, wide);
  EXPECT_EQ(draft.dtype, DType::kF32);
  LayoutRequest stored;
  stored.layout = "hf";
  follow_target(draft, target, spec, stored);
  EXPECT_EQ(draft.dtype, std::nullopt);
  EXPECT_EQ(draft.layout, "hf");
}

TEST(Draft, HasTheEnginesNameForItsArchitecture) {
  ModelSpec spec;
  const auto name = [&](DraftMethod method, const char* architecture) {
    spec.architecture = architecture;
    return draft_architecture(method, spec);
  };
  EXPECT_EQ(name(DraftMethod::kEagle, "LlamaForCausalLM"), "EagleLlamaForCausalLM");
  EXPECT_EQ(name(DraftMethod::kEagle, "EagleLlamaForCausalLM"), "EagleLlamaForCausalLM");
  EXPECT_EQ(name(DraftMethod::kEagle3, "LlamaForCausalLM"), "Eagle3LlamaForCausalLM");
  EXPECT_EQ(name(DraftMethod::kEagle3, "LlamaForCausalLMEagle3"), "Eagle3LlamaForCausalLM");
  EXPECT_EQ(name(DraftMethod::kMtp, "LlamaForCausalLM"), "");
  spec.model_type = "deepseek_v3";
  EXPECT_EQ(name(DraftMethod::kMtp, "DeepseekV3ForCausalLM"), "DeepSeekMTPModel");
}

}  // namespace
}  // namespace preload::test
