// SPDX-License-Identifier: Apache-2.0
#include "model/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "model/extent.hpp"
#include "model/model_layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

CopyProgram program_of(const Checkpoint& checkpoint, const std::string& layout,
                       const ParallelSizes& sizes, int global,
                       std::optional<DType> dtype = std::nullopt) {
  LayoutRequest request;
  request.layout = layout;
  request.dtype = dtype;
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, sizes,
                      coords_of(global, sizes));
}

Bytes bytes_of(const CopyProgram& program, const Checkpoint& checkpoint, const std::string& name) {
  const auto at = std::ranges::find(program.tensors, name, &TargetTensor::name);
  if (at == program.tensors.end()) throw std::out_of_range(name);
  return execute(program, checkpoint)[static_cast<std::size_t>(at - program.tensors.begin())];
}

// Rows [begin, end) and columns [left, right) of a stored BF16 matrix, cut by hand.
Bytes cut(const Checkpoint& checkpoint, const std::string& name, int begin, int end, int left,
          int right) {
  const auto at = std::ranges::find(checkpoint.tensors, name, &SourceTensor::name);
  const Bytes whole = rule_bytes(*at);
  const auto columns = static_cast<int>(at->shape[1]);
  Bytes out;
  for (int row = begin; row < end; ++row) {
    const auto first = whole.begin() + (row * columns + left) * 2;
    out.insert(out.end(), first, first + (right - left) * 2);
  }
  return out;
}

TEST(HfLayout, KeepsStoredNamesAndCutsThemAsTheVllmLayoutDoes) {
  const LlamaSize size;  // 4 heads of 8, 2 KV heads, hidden 32, intermediate 48, vocab 100
  const Checkpoint checkpoint = llama_checkpoint(size);
  const CopyProgram program = program_of(checkpoint, "hf", {1, 1, 2}, 1);
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(bytes_of(program, checkpoint, layer + "self_attn.q_proj.weight"),
            cut(checkpoint, layer + "self_attn.q_proj.weight", 16, 32, 0, 32));
  EXPECT_EQ(bytes_of(program, checkpoint, layer + "self_attn.k_proj.weight"),
            cut(checkpoint, layer + "self_attn.k_proj.weight", 8, 16, 0, 32));
  EXPECT_EQ(bytes_of(program, checkpoint, layer + "self_attn.o_proj.weight"),
            cut(checkpoint, layer + "self_attn.o_proj.weight", 0, 32, 16, 32));
  EXPECT_EQ(bytes_of(program, checkpoint, layer + "mlp.up_proj.weight"),
            cut(checkpoint, layer + "mlp.up_proj.weight", 24, 48, 0, 32));
  EXPECT_EQ(bytes_of(program, checkpoint, layer + "mlp.down_proj.weight"),
            cut(checkpoint, layer + "mlp.down_proj.weight", 0, 32, 24, 48));
  // 100 rows are padded to 128: rank 1 holds rows 64 to 99 and 28 rows of zeros.
  Bytes embedding = cut(checkpoint, "model.embed_tokens.weight", 64, 100, 0, 32);
  embedding.resize(64 * 32 * 2, std::byte{0});
  EXPECT_EQ(bytes_of(program, checkpoint, "model.embed_tokens.weight"), embedding);
  EXPECT_EQ(program.tensors.size(), checkpoint.tensors.size());
}

TEST(HfLayout, ReplicatesKvHeadsWhenTpExceedsThem) {
  const LlamaSize size;
  const Checkpoint checkpoint = llama_checkpoint(size);
  const std::string name = "model.layers.0.self_attn.v_proj.weight";
  const int head_of_rank[] = {0, 0, 1, 1};
  for (int rank = 0; rank < 4; ++rank) {
    const CopyProgram program = program_of(checkpoint, "hf", {1, 1, 4}, rank);
    const int head = head_of_rank[rank];
    EXPECT_EQ(bytes_of(program, checkpoint, name),
              cut(checkpoint, name, head * 8, head * 8 + 8, 0, 32))
        << rank;
  }
}

TEST(VllmLayout, PutsQueryKeyAndValueOfTheRankUnderEachOther) {
  const Checkpoint checkpoint = llama_checkpoint({});
  const CopyProgram program = program_of(checkpoint, "vllm", {1, 1, 2}, 1);
  const std::string at = "model.layers.0.self_attn.";
  Bytes expected = cut(checkpoint, at + "q_proj.weight", 16, 32, 0, 32);
  const Bytes key = cut(checkpoint, at + "k_proj.weight", 8, 16, 0, 32);
  const Bytes value = cut(checkpoint, at + "v_proj.weight", 8, 16, 0, 32);
  expected.insert(expected.end(), key.begin(), key.end());
  expected.insert(expected.end(), value.begin(), value.end());
  EXPECT_EQ(bytes_of(program, checkpoint, at + "qkv_proj.weight"), expected);
  EXPECT_EQ(tensor_named(program, at + "qkv_proj.weight").shape, (Dims{32, 32}));
}

// vLLM's down projection adds its bias on one rank and holds it on all (RowParallelLinear).
TEST(VllmLayout, BiasesOfAnMlpAreSlicedWithItsUnitsButForTheLast) {
  std::vector<Stored> tensors = llama_tensors({});  // hidden 32, intermediate 48
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".mlp.";
    tensors.push_back({at + "gate_proj.bias", DType::kBF16, {48}});
    tensors.push_back({at + "up_proj.bias", DType::kBF16, {48}});
    tensors.push_back({at + "down_proj.bias", DType::kBF16, {32}});
  }
  std::string config = llama_config({});
  config.insert(1, R"("mlp_bias": true, )");
  const Checkpoint checkpoint = make_checkpoint(config, tensors);
  const CopyProgram program = program_of(checkpoint, "vllm", {1, 1, 2}, 1);
  const TargetTensor& up = tensor_named(program, "model.layers.1.mlp.gate_up_proj.bias");
  EXPECT_EQ(up.shape, Dims{48});
  ASSERT_EQ(up.moves.size(), 2U);
  EXPECT_EQ(up.moves[0].source_offset, 24);
  EXPECT_EQ(up.moves[1].target_offset, 24);
  EXPECT_EQ(tensor_named(program, "model.layers.1.mlp.down_proj.bias").shape, Dims{32});
}

TEST(VllmLayout, FillsARankThatHoldsPaddingAloneWithZeros) {
  LlamaSize size;
  size.heads = 8;
  size.vocab = 65;  // padded to 128: of 4 ranks the last holds rows 96 to 127, none stored
  const Checkpoint checkpoint = llama_checkpoint(size);
  const CopyProgram program = program_of(checkpoint, "vllm", {1, 1, 4}, 3);
  const TargetTensor& embedding = tensor_named(program, "model.embed_tokens.weight");
  EXPECT_EQ(embedding.shape, (Dims{32, 32}));
  EXPECT_TRUE(embedding.moves.empty());
  EXPECT_EQ(embedding.fill, 0.0);
}

TEST(Layout, TiedEmbeddingsAreOneTensorWithTwoNames) {
  LlamaSize size;
  size.tied = true;
  const Checkpoint checkpoint = llama_checkpoint(size);
  for (const std::string layout : {"vllm", "hf"}) {
    const CopyProgram program = program_of(checkpoint, layout, {1, 1, 1}, 0);
    const TargetTensor& head = tensor_named(program, "lm_head.weight");
    ASSERT_TRUE(head.alias) << layout;
    EXPECT_EQ(program.tensors[*head.alias].name, "model.embed_tokens.weight");
    EXPECT_TRUE(head.moves.empty());
    EXPECT_TRUE(program.left_alone.empty());
  }
}

TEST(Layout, StoredHeadOfATiedModelIsLeftAloneWithTheReason) {
  LlamaSize size;
  size.tied = true;
  std::vector<Stored> tensors = llama_tensors(size);
  tensors.push_back({"lm_head.weight", DType::kBF16, {size.vocab, size.hidden}});
  const Checkpoint checkpoint = make_checkpoint(llama_config(size), tensors);
  const CopyProgram program = program_of(checkpoint, "vllm", {1, 1, 1}, 0);
  ASSERT_EQ(program.left_alone.size(), 1U);
  EXPECT_EQ(checkpoint.tensors[program.left_alone[0].source].name, "lm_head.weight");
  EXPECT_NE(program.left_alone[0].reason.find("tie_word_embeddings"), std::string::npos);
  EXPECT_TRUE(tensor_named(program, "lm_head.weight").alias);
}

// It may differ from the embedding, and names as stored promise what is stored under them.
TEST(Layout, StoredHeadOfATiedModelIsServedAsItIsUnderStoredNames) {
  LlamaSize size;
  size.tied = true;
  std::vector<Stored> tensors = llama_tensors(size);
  tensors.push_back({"lm_head.weight", DType::kBF16, {size.vocab, size.hidden}});
  const Checkpoint checkpoint = make_checkpoint(llama_config(size), tensors);
  const CopyProgram program = program_of(checkpoint, "hf", {1, 1, 1}, 0);
  EXPECT_TRUE(program.left_alone.empty());
  const TargetTensor& head = tensor_named(program, "lm_head.weight");
  EXPECT_FALSE(head.alias);
  ASSERT_EQ(head.moves.size(), 1U);
  EXPECT_EQ(checkpoint.tensors[head.moves[0].source].name, "lm_head.weight");
}

TEST(Layout, RotaryTablesAreLeftAlone) {
  std::vector<Stored> tensors = llama_tensors({});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {4}});
  const Checkpoint checkpoint = make_checkpoint(llama_config({}), tensors);
  const CopyProgram program = program_of(checkpoint, "hf", {1, 1, 1}, 0);
  ASSERT_EQ(program.left_alone.size(), 1U);
  EXPECT_EQ(program.left_alone[0].reason, "computed by the engine from the config");
}

TEST(Layout, TiedEmbeddingsAreOnTheFirstAndTheLastStage) {
  LlamaSize size;
  size.tied = true;
  size.layers = 5;
  const Checkpoint checkpoint = llama_checkpoint(size);
  const auto names = [&](int stage) {
    std::vector<std::string> out;
    for (const TargetTensor& tensor : program_of(checkpoint, "vllm", {1, 3, 1}, stage).tensors) {
      if (tensor.name.find("layers") == std::string::npos ||
          tensor.name.ends_with("input_layernorm.weight")) {
        out.push_back(tensor.name);
      }
    }
    return out;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(0), (Names{"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                             "model.layers.1.input_layernorm.weight"}));
  EXPECT_EQ(names(1), (Names{"model.layers.2.input_layernorm.weight",
                             "model.layers.3.input_layernorm.weight"}));
  EXPECT_EQ(names(2), (Names{"model.embed_tokens.weight", "model.layers.4.input_layernorm.weight",
                             "model.norm.weight", "lm_head.weight"}));
}

TEST(VllmLayout, HoldsFloatsInTheConfigsType) {
  std::vector<Stored> tensors = llama_tensors({});
  for (Stored& tensor : tensors) tensor.dtype = DType::kF32;
  const Checkpoint checkpoint = make_checkpoint(llama_config({}), tensors);  // config: bfloat16
  const CopyProgram program = program_of(checkpoint, "vllm", {1, 1, 2}, 0);
  for (const TargetTensor& tensor : program.tensors) {
    EXPECT_EQ(tensor.dtype, DType::kBF16) << tensor.name;
    for (const Move& move : tensor.moves) EXPECT_EQ(move.conversion, Conversion::kValue);
  }
  // The rule writes both 16-bit halves of an F32 as 0x3cxx or 0xbcxx: the upper half is cut off at
  // or just above the middle, so rounding to nearest decides.
  const Bytes held = bytes_of(program, checkpoint, "model.norm.weight");
  const Bytes stored = rule_bytes(checkpoint.tensors[checkpoint.tensors.size() - 2]);
  for (std::size_t i = 0; i < 32; ++i) {
    std::uint32_t wide = 0;
    std::uint16_t narrow = 0;
    std::memcpy(&wide, stored.data() + 4 * i, 4);
    std::memcpy(&narrow, held.data() + 2 * i, 2);
    const std::uint32_t expected = (wide >> 16) + ((wide & 0xffff) > 0x8000 ? 1 : 0);
    EXPECT_EQ(narrow, expected) << i;
  }
}

TEST(VllmLayout, AutoTurnsFloat32IntoBfloat16AndDtypeOverrules) {
  std::vector<Stored> tensors = llama_tensors({});
  for (Stored& tensor : tensors) tensor.dtype = DType::kF32;
  std::string config = llama_config({});
  config.replace(config.find("bfloat16"), 8, "float32");
  const Checkpoint checkpoint = make_checkpoint(config, tensors);
  EXPECT_EQ(program_of(checkpoint, "vllm", {1, 1, 1}, 0).tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(program_of(checkpoint, "vllm", {1, 1, 1}, 0, DType::kF32).tensors[0].dtype,
            DType::kF32);
  EXPECT_EQ(program_of(checkpoint, "hf", {1, 1, 1}, 0).tensors[0].dtype, DType::kF32);
  EXPECT_EQ(program_of(checkpoint, "hf", {1, 1, 1}, 0, DType::kF16).tensors[0].dtype, DType::kF16);
}

TEST(HfLayout, ServesAnyArchitectureAsStoredAndCastsWideFloatsAlone) {
  const Checkpoint checkpoint = make_checkpoint(R"({"architectures": ["BertModel"]})",
                                                {{"embeddings.position_ids", DType::kI64, {1, 512}},
                                                 {"pooler.dense.weight", DType::kF32, {4, 4}},
                                                 {"scalar", DType::kF32, {}},
                                                 {"empty", DType::kF32, {0, 3}}});
  const CopyProgram stored = program_of(checkpoint, "hf", {2, 1, 1}, 1);
  ASSERT_EQ(stored.tensors.size(), 4U);
  const std::vector<Bytes> bytes = execute(stored, checkpoint);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(stored.tensors[i].name, checkpoint.tensors[i].name);
    EXPECT_EQ(stored.tensors[i].dtype, checkpoint.tensors[i].dtype);
    EXPECT_EQ(stored.tensors[i].shape, checkpoint.tensors[i].shape);
    EXPECT_EQ(bytes[i], rule_bytes(checkpoint.tensors[i]));
  }
  const CopyProgram cast = program_of(checkpoint, "hf", {1, 1, 1}, 0, DType::kBF16);
  EXPECT_EQ(cast.tensors[0].dtype, DType::kI64);
  EXPECT_EQ(cast.tensors[1].dtype, DType::kBF16);
}

// How often each element of each stored tensor is taken, over the tensor-parallel ranks.
std::vector<std::vector<int>> times_taken(const Checkpoint& checkpoint, const std::string& layout,
                                          int tp) {
  std::vector<std::vector<int>> taken(checkpoint.tensors.size());
  for (std::size_t i = 0; i < taken.size(); ++i) {
    taken[i].assign(static_cast<std::size_t>(element_count(checkpoint.tensors[i].shape)), 0);
  }
  for (int rank = 0; rank < tp; ++rank) {
    const CopyProgram program = program_of(checkpoint, layout, {1, 1, tp}, rank);
    for (const TargetTensor& tensor : program.tensors) {
      for (const Move& move : tensor.moves) {
        const std::int64_t columns = move.sizes.size() > 1 ? move.sizes[1] : 1;
        for (std::int64_t row = 0; row < move.sizes[0]; ++row) {
          for (std::int64_t column = 0; column < columns; ++column) {
            ++taken[move.source][static_cast<std::size_t>(move.source_offset +
                                                          row * move.source_strides[0] + column)];
          }
        }
      }
    }
  }
  return taken;
}

TEST(Layout, RanksTakeEveryElementAsOftenAsTheModelReplicatesIt) {
  std::mt19937 random(20261);
  const auto pick = [&](std::initializer_list<int> from) {
    return *(from.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                0, static_cast<std::ptrdiff_t>(from.size()) - 1)(random));
  };
  for (int round = 0; round < 40; ++round) {
    LlamaSize size;
    const int tp = pick({1, 2, 4, 8});
    size.layers = 1;
    size.kv_heads = pick({1, 2, 4, 8});
    size.heads = 8 * pick({1, 2, 3});
    size.head_dim = pick({2, 6, 8});
    size.hidden = pick({8, 20, 24});
    size.intermediate = 8 * pick({1, 3, 5});
    size.vocab = std::uniform_int_distribution<int>(1, 300)(random);
    size.tied = pick({0, 1}) == 1;
    SCOPED_TRACE(testing::Message() << "tp " << tp << " heads " << size.heads << " kv "
                                    << size.kv_heads << " vocab " << size.vocab);
    const Checkpoint checkpoint = llama_checkpoint(size);
    for (const std::string layout : {"vllm", "hf"}) {
      const auto taken = times_taken(checkpoint, layout, tp);
      for (std::size_t i = 0; i < taken.size(); ++i) {
        const std::string& name = checkpoint.tensors[i].name;
        int expected = 1;
        if (name.find("norm") != std::string::npos) expected = tp;
        if (name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos) {
          expected = std::max(1, tp / size.kv_heads);
        }
        EXPECT_TRUE(std::ranges::all_of(taken[i], [&](int n) { return n == expected; }))
            << layout << " " << name;
      }
    }
  }
}

TEST(Layout, EveryRankMakesTheSameProgramAndTheSameSizes) {
  LlamaSize size;
  size.layers = 7;
  size.tied = true;
  const Checkpoint checkpoint = llama_checkpoint(size);
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
  const ParallelSizes sizes{2, 3, 2};
  for (const std::string name : {"vllm", "hf"}) {
    LayoutRequest request;
    request.layout = name;
    const auto layout = open_layout(checkpoint, spec, request, sizes);
    for (int global = 0; global < sizes.world(); ++global) {
      const RankCoords rank = coords_of(global, sizes);
      const CopyProgram program = layout->program(rank);
      EXPECT_EQ(program, make_program(checkpoint, spec, request, sizes, rank));
      RankCoords replica = rank;
      replica.dp = 1 - rank.dp;
      EXPECT_EQ(program, layout->program(replica));
      std::uint64_t held = 0;
      std::uint64_t read = 0;
      for (const TargetTensor& tensor : program.tensors) {
        if (!tensor.alias) held += extent_bytes(tensor);
        for (const Move& move : tensor.moves) {
          read += static_cast<std::uint64_t>(element_count(move.sizes)) * 2;
        }
      }
      EXPECT_EQ(layout->share(rank), (ShareSize{held, read})) << name << " rank " << global;
    }
  }
}

}  // namespace
}  // namespace preload::test
