// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "model/model_layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

// A Qwen3-MoE of any size; with `block` > 0 its projections are F8_E4M3 with scales of such blocks.
struct MoeSize {
  int hidden = 16;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 8;
  int experts = 5;
  int units = 8;
  int vocab = 100;
  int block = 0;
};

Checkpoint moe_checkpoint(const MoeSize& size) {
  std::vector<Stored> tensors;
  const auto add = [&](const std::string& name, const Dims& shape) {
    tensors.push_back({name, DType::kBF16, shape});
    if (size.block == 0 || !name.ends_with("_proj.weight")) return;
    tensors.back().dtype = DType::kF8E4M3;
    const auto blocks = [&](std::int64_t n) { return (n + size.block - 1) / size.block; };
    tensors.push_back({name + "_scale_inv", DType::kF32, {blocks(shape[0]), blocks(shape[1])}});
  };
  const int query = size.heads * size.head_dim;
  const int key = size.kv_heads * size.head_dim;
  add("model.embed_tokens.weight", {size.vocab, size.hidden});
  const std::string at = "model.layers.0.";
  add(at + "self_attn.q_proj.weight", {query, size.hidden});
  add(at + "self_attn.k_proj.weight", {key, size.hidden});
  add(at + "self_attn.v_proj.weight", {key, size.hidden});
  add(at + "self_attn.o_proj.weight", {size.hidden, query});
  add(at + "self_attn.q_norm.weight", {size.head_dim});
  add(at + "self_attn.k_norm.weight", {size.head_dim});
  add(at + "mlp.gate.weight", {size.experts, size.hidden});
  for (int expert = 0; expert < size.experts; ++expert) {
    const std::string one = fmt::format("{}mlp.experts.{}.", at, expert);
    add(one + "gate_proj.weight", {size.units, size.hidden});
    add(one + "up_proj.weight", {size.units, size.hidden});
    add(one + "down_proj.weight", {size.hidden, size.units});
  }
  add(at + "input_layernorm.weight", {size.hidden});
  add(at + "post_attention_layernorm.weight", {size.hidden});
  add("model.norm.weight", {size.hidden});
  add("lm_head.weight", {size.vocab, size.hidden});
  const std::string quantised = size.block == 0
                                    ? ""
                                    : fmt::format(R"("quantization_config": {{"quant_method": "fp8",
                                       "weight_block_size": [{0}, {0}]}},)",
                                                  size.block);
  return make_checkpoint(
      fmt::format(R"({{{} "architectures": ["Qwen3MoeForCausalLM"], "dtype": "bfloat16",
          "hidden_size": {}, "num_hidden_layers": 1, "num_attention_heads": {},
          "num_key_value_heads": {}, "head_dim": {}, "num_experts": {},
          "moe_intermediate_size": {}, "vocab_size": {}}})",
                  quantised, size.hidden, size.heads, size.kv_heads, size.head_dim, size.experts,
                  size.units, size.vocab),
      tensors);
}

// How often the ranks together take each element of each stored tensor.
std::map<std::string, std::vector<int>> times_taken(const Checkpoint& checkpoint,
                                                    const std::vector<CopyProgram>& programs) {
  std::map<std::string, std::vector<int>> taken;
  for (const SourceTensor& tensor : checkpoint.tensors) {
    taken[tensor.name].assign(static_cast<std::size_t>(element_count(tensor.shape)), 0);
  }
  for (const CopyProgram& program : programs) {
    for (const TargetTensor& tensor : program.tensors) {
      for (const Move& move : tensor.moves) {
        std::vector<int>& times = taken.at(checkpoint.tensors[move.source].name);
        for (std::int64_t i = 0; i < element_count(move.sizes); ++i) {
          std::int64_t at = move.source_offset;
          std::int64_t rest = i;
          for (std::size_t axis = move.sizes.size(); axis-- > 0; rest /= move.sizes[axis]) {
            at += rest % move.sizes[axis] * move.source_strides[axis];
          }
          ++times.at(static_cast<std::size_t>(at));
        }
      }
    }
  }
  return taken;
}

TEST(RandomLayouts, CoverEveryTargetExactlyAndGiveBackEveryByte) {
  std::mt19937 random(77);
  const auto pick = [&](std::initializer_list<int> from) {
    return *(from.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                0, static_cast<std::ptrdiff_t>(from.size()) - 1)(random));
  };
  for (int round = 0; round < 120; ++round) {
    ParallelSizes sizes{pick({1, 2, 3}), 1, pick({1, 2, 4})};
    sizes.expert_parallel = pick({0, 1}) == 1;
    MoeSize size;
    size.block = pick({0, 0, 2, 4});
    const int unit = std::max(1, size.block);  // what no rank may cut
    size.heads = 4 * pick({1, 2});
    size.kv_heads = pick({1, 2, 4});
    size.head_dim = unit * pick({1, 2, 3});
    size.hidden = unit * pick({3, 5, 8}) + (size.block > 0 ? pick({0, 1}) : 0);
    size.units = unit * sizes.dp * sizes.tp * pick({1, 2});
    size.experts = std::uniform_int_distribution<int>(sizes.tp, 14)(random);  // vLLM's least
    size.vocab = std::uniform_int_distribution<int>(1, 300)(random);
    LayoutRequest request;
    request.layout = pick({0, 1}) == 1 ? "vllm" : "hf";
    SCOPED_TRACE(testing::Message()
                 << request.layout << " dp " << sizes.dp << " tp " << sizes.tp << " ep "
                 << sizes.expert_parallel << " experts " << size.experts << " units " << size.units
                 << " block " << size.block << " hidden " << size.hidden);
    const Checkpoint checkpoint = moe_checkpoint(size);
    const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
    const auto layout = open_layout(checkpoint, spec, request, sizes);
    std::vector<CopyProgram> programs;
    for (int rank = 0; rank < sizes.world(); ++rank) {
      programs.push_back(layout->program(coords_of(rank, sizes)));
      check_program(programs.back(),
                    checkpoint);  // covered exactly, nothing twice, nothing outside
      EXPECT_EQ(programs.back(),
                make_program(checkpoint, spec, request, sizes, coords_of(rank, sizes)));
    }
    for (const auto& [name, times] : times_taken(checkpoint, programs)) {
      const bool scale = name.ends_with("_scale_inv");
      const bool of_expert = name.find(".experts.") != std::string::npos;
      const auto [least, most] = std::ranges::minmax(times);
      EXPECT_GE(least, 1) << name;
      EXPECT_EQ(least, most) << name;
      if (of_expert && !scale) {
        EXPECT_EQ(most, 1) << name;
      }
    }
  }
}

}  // namespace
}  // namespace preload::test
