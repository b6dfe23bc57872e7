// SPDX-License-Identifier: Apache-2.0
#include "plan/key.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/shard_description.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

KeyFields fields_of(const Checkpoint& checkpoint, const ParallelSizes& sizes, int global,
                    const LayoutRequest& request = {}, const std::string& id = "id") {
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
  const RankCoords rank = coords_of(global, sizes);
  const CopyProgram program = make_program(checkpoint, spec, request, sizes, rank);
  return key_fields(spec, request, program, sizes, rank, id);
}

TEST(CheckpointId, IsTheHashOfTheCanonicalList) {
  const Checkpoint checkpoint =
      make_checkpoint("{}", {{"b", DType::kF32, {2, 3}}, {"a\"", DType::kI8, {}}});
  const std::string text =
      "{\"dtype\":\"I8\",\"name\":\"a\\\"\",\"shape\":[]}\n"
      "{\"dtype\":\"F32\",\"hash\":\"00000000000000020000000000000001\",\"name\":\"b\","
      "\"shape\":[2,3]}\n";
  EXPECT_EQ(checkpoint_id(checkpoint, {{0, Hash128{1, 2}}}), sha256_hex(text));
}

TEST(CheckpointId, DoesNotDependOnFilesOrOrder) {
  Checkpoint one = make_checkpoint("{}", {{"a", DType::kF32, {2}}, {"b", DType::kF32, {3}}});
  Checkpoint other = make_checkpoint("{}", {{"b", DType::kF32, {3}}, {"a", DType::kF32, {2}}});
  EXPECT_EQ(checkpoint_id(one, {{0, Hash128{5, 0}}, {1, Hash128{6, 0}}}),
            checkpoint_id(other, {{1, Hash128{5, 0}}, {0, Hash128{6, 0}}}));
  EXPECT_NE(checkpoint_id(one, {{0, Hash128{5, 0}}}), checkpoint_id(one, {{0, Hash128{6, 0}}}));
}

TEST(Key, ReplicasShareItAndShardsDoNot) {
  const Checkpoint checkpoint = llama_checkpoint({});
  const ParallelSizes sizes{2, 2, 2};
  const KeyFields first = fields_of(checkpoint, sizes, 0);
  EXPECT_EQ(first, fields_of(checkpoint, sizes, 4));  // the other replica
  EXPECT_NE(first, fields_of(checkpoint, sizes, 1));
  EXPECT_NE(first, fields_of(checkpoint, sizes, 2));
  EXPECT_EQ(key_digest(first).size(), 64U);
  EXPECT_EQ(key_digest(first), key_digest(fields_of(checkpoint, sizes, 4)));
}

TEST(Key, ADpFleetMatchesASingleReplica) {
  const Checkpoint checkpoint = llama_checkpoint({});
  EXPECT_EQ(fields_of(checkpoint, {4, 1, 1}, 3), fields_of(checkpoint, {1, 1, 1}, 0));
}

TEST(Key, SharingExpertsMakesReplicasDiffer) {
  const Checkpoint checkpoint = fixture_checkpoint("deepseek_v3");
  ParallelSizes sizes{2, 1, 2};
  const KeyFields sliced = fields_of(checkpoint, sizes, 2);
  EXPECT_EQ(sliced.at("moe_tp_size"), "4");
  EXPECT_EQ(sliced.at("moe_tp_rank"), "2");
  EXPECT_EQ(sliced.at("ep_size"), "1");
  EXPECT_EQ(sliced.at("tp_rank"), "0");
  EXPECT_EQ(sliced.at("tied"), "false") << "other names of experts' tensors tie no head";
  EXPECT_NE(sliced, fields_of(checkpoint, sizes, 0));
  sizes.expert_parallel = true;
  const KeyFields spread = fields_of(checkpoint, sizes, 2);
  EXPECT_EQ(spread.at("moe_tp_size"), "1");
  EXPECT_EQ(spread.at("ep_size"), "4");
  EXPECT_EQ(spread.at("ep_rank"), "2");
  EXPECT_NE(key_digest(spread), key_digest(sliced));
}

TEST(Key, NamesPlacementAndBackendWhereTheyTakeEffect) {
  const Checkpoint checkpoint = fixture_checkpoint("deepseek_v3");
  LayoutRequest dealt;
  dealt.placement = ExpertPlacement::kRoundRobin;
  dealt.all2all_backend = "nixl_ep";
  ParallelSizes sizes{1, 1, 2};
  sizes.expert_parallel = true;
  EXPECT_EQ(fields_of(checkpoint, sizes, 0, dealt).at("expert_placement"), "round_robin");
  EXPECT_EQ(fields_of(checkpoint, sizes, 0, dealt).at("all2all_backend"), "any");
  EXPECT_NE(fields_of(checkpoint, sizes, 0, dealt), fields_of(checkpoint, sizes, 0));
  sizes.dp = 2;
  EXPECT_EQ(fields_of(checkpoint, sizes, 0, dealt).at("all2all_backend"), "nixl_ep");
  // What does not take effect is no part of the key: mixtral has neither groups nor shared experts.
  const Checkpoint mixtral = fixture_checkpoint("mixtral");
  EXPECT_EQ(fields_of(mixtral, sizes, 0, dealt), fields_of(mixtral, sizes, 0));
}

TEST(Key, NamesTheMoeBackendWhereItDecidesShapesAndTheKvCacheTypeAlways) {
  LayoutRequest request;
  request.moe_backend = "marlin";
  request.kv_cache_dtype = "fp8";
  const Checkpoint plain = fixture_checkpoint("mixtral");
  EXPECT_EQ(fields_of(plain, {}, 0, request).at("moe_backend"), "any");
  EXPECT_EQ(fields_of(plain, {}, 0, request).at("kv_cache_dtype"), "fp8");
  EXPECT_EQ(fields_of(plain, {}, 0).at("kv_cache_dtype"), "auto");
  ModelSpec spec = parse_model_spec(plain.config_json, "");
  spec.quantization = "mxfp4";
  CopyProgram program;
  program.layout = "vllm";
  EXPECT_EQ(key_fields(spec, request, program, {}, {}, "").at("moe_backend"), "marlin");
  program.layout = "hf";
  EXPECT_EQ(key_fields(spec, request, program, {}, {}, "").at("moe_backend"), "any");
}

TEST(Key, HoldsWhatSelectsBytesAndNamesIt) {
  const Checkpoint checkpoint = llama_checkpoint({});
  LayoutRequest hf;
  hf.layout = "hf";
  LayoutRequest wide;
  wide.dtype = DType::kF32;
  const ParallelSizes one{1, 1, 1};
  const KeyFields base = fields_of(checkpoint, one, 0);
  EXPECT_EQ(base.at("dtype"), "BF16");
  EXPECT_EQ(base.at("layout"), "vllm/1");
  EXPECT_EQ(base.at("layers"), "all");
  EXPECT_EQ(base.at("checkpoint"), "id");
  EXPECT_EQ(fields_of(checkpoint, one, 0, hf).at("layout"), "hf/1");
  EXPECT_EQ(fields_of(checkpoint, one, 0, hf).at("dtype"), "stored");
  EXPECT_EQ(fields_of(checkpoint, one, 0, wide).at("dtype"), "F32");
  EXPECT_EQ(fields_of(checkpoint, {1, 2, 1}, 1).at("layers"), "1:2 of 2");
  EXPECT_EQ(base.at("heads"), "all");
  EXPECT_EQ(fields_of(checkpoint, {1, 1, 2}, 1).at("heads"), "4/2x8");
  EXPECT_EQ(base.at("tied"), "false");
  LlamaSize tied;
  tied.tied = true;
  EXPECT_EQ(fields_of(llama_checkpoint(tied), one, 0).at("tied"), "true");
  EXPECT_NE(key_digest(base), key_digest(fields_of(checkpoint, one, 0, {}, "other")));
}

TEST(Key, HoldsAllOfTheQuantisationsConfig) {
  const auto field = [](const std::string& quantization, const char* name) {
    const Checkpoint checkpoint =
        make_checkpoint(R"({"architectures": ["X"], "quantization_config": )" + quantization + "}",
                        {{"a", DType::kF32, {2}}});
    LayoutRequest stored;
    stored.layout = "hf";
    return fields_of(checkpoint, {}, 0, stored).at(name);
  };
  const std::string fp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
  EXPECT_EQ(field("null", "quantization_config"), "none");
  EXPECT_EQ(field(fp8, "quantization"), "fp8");
  EXPECT_EQ(field(fp8, "quantization_config"),
            sha256_hex(R"({"quant_method":"fp8","weight_block_size":[128,128]})"));
  EXPECT_EQ(
      field(R"({"weight_block_size":[128,128], "quant_method":"fp8"})", "quantization_config"),
      field(fp8, "quantization_config"));
  EXPECT_NE(
      field(R"({"quant_method": "fp8", "weight_block_size": [128, 64]})", "quantization_config"),
      field(fp8, "quantization_config"));
}

// Computed by hand (printf '%s' … | sha256sum): the same on every machine.
TEST(Key, IsTheDigestOfCanonicalJson) {
  EXPECT_EQ(key_digest({{"tp_size", "2"}, {"a\"b", "\xc3\xa9"}}),
            "5725231e064167cbbc4841c75eb300f9a8c14032cb27a444a6ce2469aa055c3b");
}

TEST(Key, OfADraftIsNotItsTargets) {
  const Checkpoint checkpoint = fixture_checkpoint("deepseek_v3_mtp");
  LayoutRequest draft;
  draft.draft = DraftRequest{DraftMethod::kMtp, 1003};
  const auto fields = [&](const LayoutRequest& request) {
    const ModelSpec spec = layout_spec(checkpoint, request, "");
    const CopyProgram program = make_program(checkpoint, spec, request, {}, {});
    return key_fields(spec, request, program, {}, {}, "id");
  };
  EXPECT_EQ(fields(draft).at("role"), "draft");
  EXPECT_EQ(fields(draft).at("architecture"), "DeepSeekMTPModel");
  EXPECT_NE(key_digest(fields(draft)), key_digest(fields({})));
}

TEST(ShardDescription, SurvivesItsJson) {
  ShardDescription shard;
  shard.model = "org/name";
  shard.directory = "/path/\"with quotes\"";
  shard.hf_overrides = R"({"a":1})";
  shard.request.layout = "hf";
  shard.request.dtype = DType::kF16;
  shard.request.ignore = {"a*", "b"};
  shard.request.draft = DraftRequest{DraftMethod::kEagle3, 1003};
  shard.layout_version = 3;
  shard.role = Role::kDraft;
  shard.sizes = {2, 3, 4, true, {5, 6, 7}};
  shard.request.placement = ExpertPlacement::kRoundRobin;
  shard.request.all2all_backend = "nixl_ep";
  shard.rank = {7, 0, 1, 3, 5};
  shard.job = "job";
  shard.key = std::string(64, 'a');
  shard.fields = {{"tp_rank", "3"}};
  shard.checkpoint_id = std::string(64, 'b');
  shard.attributes_json = R"({"layers":2})";
  EXPECT_EQ(shard_from_json(to_json(shard)), shard);
  shard.request.dtype.reset();
  shard.request.draft.reset();
  shard.rank.ep.reset();
  EXPECT_EQ(shard_from_json(to_json(shard)), shard);
}

TEST(ShardDescription, RefusesWhatIsNoDescription) {
  for (const std::string text : {"", "[]", "{}", R"({"model": 3})"}) {
    try {
      shard_from_json(text);
      ADD_FAILURE() << "taken: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kProtocol);
    }
  }
}

}  // namespace
}  // namespace preload::test
