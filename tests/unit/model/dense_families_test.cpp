// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

CopyProgram program_of(const Checkpoint& checkpoint, const std::string& layout,
                       const ParallelSizes& sizes, int global) {
  LayoutRequest request;
  request.layout = layout;
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, sizes,
                      coords_of(global, sizes));
}

Bytes bytes_of(const CopyProgram& program, const Checkpoint& checkpoint, const std::string& name) {
  const auto at = std::ranges::find(program.tensors, name, &TargetTensor::name);
  if (at == program.tensors.end()) throw std::out_of_range(name);
  return execute(program, checkpoint)[static_cast<std::size_t>(at - program.tensors.begin())];
}

// These rows of a stored BF16 matrix, one after the other.
Bytes rows_of(const Checkpoint& checkpoint, const std::string& name, const std::vector<int>& rows) {
  const auto at = std::ranges::find(checkpoint.tensors, name, &SourceTensor::name);
  const Bytes whole = rule_bytes(*at);
  const std::int64_t bytes = at->shape[1] * 2;
  Bytes out;
  for (const int row : rows) {
    out.insert(out.end(), whole.begin() + row * bytes, whole.begin() + (row + 1) * bytes);
  }
  return out;
}

void append_range(std::vector<int>& rows, int begin, int count) {
  for (int i = 0; i < count; ++i) rows.push_back(begin + i);
}

// What a rank holds of q above k above v: its share of the heads of each. With fewer KV heads than
// ranks neighbours hold the same head.
std::vector<int> fused_qkv_rows(const LlamaSize& size, int tp, int rank) {
  std::vector<int> rows;
  append_range(rows, rank * size.heads / tp * size.head_dim, size.heads / tp * size.head_dim);
  const int heads = std::max(1, size.kv_heads / tp);
  const int first = size.kv_heads >= tp ? rank * heads : rank / (tp / size.kv_heads);
  const int above = size.heads * size.head_dim;
  for (const int block : {above, above + size.kv_heads * size.head_dim}) {
    append_range(rows, block + first * size.head_dim, heads * size.head_dim);
  }
  return rows;
}

Checkpoint phi3_checkpoint(const LlamaSize& size) {
  json config = json::parse(llama_config(size));
  config["architectures"] = {"Phi3ForCausalLM"};
  const DType type = DType::kBF16;
  const int query = size.heads * size.head_dim;
  const int key = size.kv_heads * size.head_dim;
  std::vector<Stored> tensors{{"model.embed_tokens.weight", type, {size.vocab, size.hidden}},
                              {"model.norm.weight", type, {size.hidden}},
                              {"lm_head.weight", type, {size.vocab, size.hidden}}};
  const std::string at = "model.layers.0.";
  tensors.push_back({at + "input_layernorm.weight", type, {size.hidden}});
  tensors.push_back({at + "post_attention_layernorm.weight", type, {size.hidden}});
  tensors.push_back({at + "mlp.gate_up_proj.weight", type, {2 * size.intermediate, size.hidden}});
  tensors.push_back({at + "mlp.down_proj.weight", type, {size.hidden, size.intermediate}});
  tensors.push_back({at + "self_attn.qkv_proj.weight", type, {query + 2 * key, size.hidden}});
  tensors.push_back({at + "self_attn.o_proj.weight", type, {size.hidden, query}});
  return make_checkpoint(config.dump(), tensors);
}

TEST(Phi3, RanksTakeTheirHeadsAndHalvesOfTheFusedTensors) {
  std::mt19937 random(20265);
  const auto pick = [&](std::initializer_list<int> from) {
    return *(from.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                0, static_cast<std::ptrdiff_t>(from.size()) - 1)(random));
  };
  for (int round = 0; round < 30; ++round) {
    LlamaSize size;
    size.layers = 1;
    const int tp = pick({1, 2, 4, 8});
    size.kv_heads = pick({1, 2, 4, 8, 16});
    size.heads = 16 * pick({1, 2, 3});
    size.head_dim = pick({2, 3, 8});
    size.hidden = pick({8, 20, 24});
    size.intermediate = 8 * pick({1, 3, 5});
    SCOPED_TRACE(testing::Message() << "tp " << tp << " heads " << size.heads << " kv "
                                    << size.kv_heads << " of " << size.head_dim);
    const Checkpoint checkpoint = phi3_checkpoint(size);
    const std::string qkv = "model.layers.0.self_attn.qkv_proj.weight";
    const std::string gate_up = "model.layers.0.mlp.gate_up_proj.weight";
    for (int rank = 0; rank < tp; ++rank) {
      std::vector<int> halves;
      const int part = size.intermediate / tp;
      append_range(halves, rank * part, part);
      append_range(halves, size.intermediate + rank * part, part);
      for (const std::string layout : {"vllm", "hf"}) {
        const CopyProgram program = program_of(checkpoint, layout, {1, 1, tp}, rank);
        EXPECT_EQ(bytes_of(program, checkpoint, qkv),
                  rows_of(checkpoint, qkv, fused_qkv_rows(size, tp, rank)))
            << layout << " rank " << rank;
        EXPECT_EQ(bytes_of(program, checkpoint, gate_up), rows_of(checkpoint, gate_up, halves))
            << layout << " rank " << rank;
      }
    }
  }
}

TEST(Phi3, FusedTensorsOfAnotherHeightAreRefusedWithBothShapes) {
  LlamaSize size;
  const Checkpoint stored = phi3_checkpoint(size);
  json config = json::parse(stored.config_json);
  config["num_hidden_layers"] = 1;
  config["num_key_value_heads"] = 4;
  Checkpoint checkpoint = stored;
  checkpoint.config_json = config.dump();
  try {
    program_of(checkpoint, "vllm", {1, 1, 1}, 0);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    EXPECT_THAT(error.what(), HasSubstr("self_attn.qkv_proj.weight is [64, 32]"));
    EXPECT_THAT(error.what(), HasSubstr("[96, 32]"));
  }
}

std::vector<std::string> names_outside_layers(const CopyProgram& program) {
  std::vector<std::string> names;
  for (const TargetTensor& tensor : program.tensors) {
    if (tensor.name.find(".layers.") == std::string::npos) names.push_back(tensor.name);
  }
  return names;
}

TEST(Gemma, EveryPipelineStageHoldsEmbeddingsAndNorm) {
  using Names = std::vector<std::string>;
  for (int stage = 0; stage < 2; ++stage) {
    // vLLM's Gemma 2 takes its logits from the embeddings: it has no head.
    EXPECT_EQ(
        names_outside_layers(program_of(fixture_checkpoint("gemma2"), "vllm", {1, 2, 1}, stage)),
        (Names{"model.embed_tokens.weight", "model.norm.weight"}));
    EXPECT_EQ(
        names_outside_layers(program_of(fixture_checkpoint("gemma3"), "vllm", {1, 2, 1}, stage)),
        (Names{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}));
  }
}

TEST(Gemma, ConfigsThatLeaveOutDefaultsMeanTheClassesDefaults) {
  const ModelSpec gemma =
      parse_model_spec(R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 2560})", "");
  EXPECT_TRUE(gemma.tie_word_embeddings);
  EXPECT_EQ(gemma.head_dim, 256);
  EXPECT_EQ(gemma.num_attention_heads, 8);
  EXPECT_EQ(gemma.num_key_value_heads, 4);
  const ModelSpec stated = parse_model_spec(
      R"({"architectures": ["Gemma3ForCausalLM"], "tie_word_embeddings": false, "head_dim": 32})",
      "");
  EXPECT_FALSE(stated.tie_word_embeddings);
  EXPECT_EQ(stated.head_dim, 32);
  // A null is stated, too: the heads follow from the hidden size then.
  const ModelSpec null = parse_model_spec(
      R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "head_dim": null})", "");
  EXPECT_EQ(null.head_dim, 8);
}

TEST(Gemma, UntiedHeadsAreRefusedWhereTheEngineHasNone) {
  Checkpoint checkpoint = fixture_checkpoint("gemma2");
  json config = json::parse(checkpoint.config_json);
  config["tie_word_embeddings"] = false;
  checkpoint.config_json = config.dump();
  SourceTensor head = checkpoint.tensors.front();
  head.name = "lm_head.weight";
  head.shape = {config["vocab_size"], config["hidden_size"]};
  head.bytes = static_cast<std::uint64_t>(element_count(head.shape)) * 2;
  checkpoint.tensors.push_back(head);
  try {
    program_of(checkpoint, "vllm", {1, 1, 1}, 0);
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"lm_head.weight\""));
  }
  const CopyProgram program = program_of(checkpoint, "transformers", {1, 1, 1}, 0);
  EXPECT_FALSE(tensor_named(program, "lm_head.weight").alias);
}

// The parts of `program` whose names begin so, without that.
std::vector<TargetTensor> without_prefix(const CopyProgram& program, const std::string& prefix) {
  std::vector<TargetTensor> found;
  for (TargetTensor tensor : program.tensors) {
    if (!tensor.name.starts_with(prefix)) continue;
    tensor.name.erase(0, prefix.size());
    found.push_back(tensor);
  }
  return found;
}

TEST(Gemma, MultimodalCheckpointsServeTheLanguageModelUnderItsPrefix) {
  for (const std::string name : {"gemma3_mm", "gemma3_mm_new"}) {
    const Checkpoint checkpoint = fixture_checkpoint(name);
    const CopyProgram program = program_of(checkpoint, "vllm", {1, 1, 1}, 0);
    // vLLM has Gemma3ForCausalLM under language_model: embeddings, 10 tensors a layer, norm, head.
    EXPECT_EQ(without_prefix(program, "language_model.").size(), 3U + 3U * 10U) << name;
    EXPECT_TRUE(tensor_named(program, "language_model.lm_head.weight").alias) << name;
    for (const SourceTensor& stored : checkpoint.tensors) {
      if (stored.name.find("vision_tower") == std::string::npos) continue;
      const TargetTensor& whole = tensor_named(program, stored.name);
      EXPECT_EQ(whole.shape, stored.shape) << stored.name;
      EXPECT_EQ(bytes_of(program, checkpoint, stored.name), rule_bytes(stored)) << stored.name;
    }
  }
}

TEST(Gemma, TheLanguageModelAloneOfAMultimodalCheckpointCanBeCut) {
  const Checkpoint checkpoint = fixture_checkpoint("gemma3_mm");
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
  const ParallelSizes sizes{1, 2, 2};
  LayoutRequest request;
  try {
    make_program(checkpoint, spec, request, sizes, coords_of(0, sizes));
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    EXPECT_THAT(error.what(), HasSubstr("\"multi_modal_projector.mm_soft_emb_norm.weight\""));
    EXPECT_THAT(error.what(), HasSubstr("--ignore-tensor 'multi_modal_projector.*' "
                                        "--ignore-tensor 'vision_tower.vision_model.*'"));
  }
  request.ignore = {"multi_modal_projector.*", "vision_tower.*"};
  for (int rank = 0; rank < 4; ++rank) {
    const CopyProgram program =
        make_program(checkpoint, spec, request, sizes, coords_of(rank, sizes));
    EXPECT_EQ(without_prefix(program, "language_model.").size(), program.tensors.size());
    EXPECT_EQ(tensor_named(program, "language_model.model.norm.weight").shape, (Dims{64}));
  }
}

}  // namespace
}  // namespace preload::test
