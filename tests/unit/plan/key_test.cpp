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
  shard.sizes = {2, 3, 4};
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
