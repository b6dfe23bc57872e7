// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.hpp"
#include "model/expert_share.hpp"
#include "model/extent.hpp"
#include "model/model_layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ParallelSizes with_ep(int dp, int pp, int tp) {
  ParallelSizes sizes{dp, pp, tp};
  sizes.expert_parallel = true;
  return sizes;
}

CopyProgram program_of(const Checkpoint& checkpoint, const LayoutRequest& request,
                       const ParallelSizes& sizes, int global) {
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, sizes,
                      coords_of(global, sizes));
}

LayoutRequest layout(const std::string& name) {
  LayoutRequest request;
  request.layout = name;
  return request;
}

// The experts of layer 1 whose down projections a rank holds, in the order in which it holds them.
std::vector<std::string> experts_held(const CopyProgram& program, const Checkpoint& checkpoint) {
  std::vector<std::string> held;
  const TargetTensor& down =
      tensor_named(program, "model.layers.1.mlp.experts.routed_experts.w2_weight");
  for (const Move& move : down.moves) {
    const std::string& name = checkpoint.tensors[move.source].name;
    const std::size_t at = name.find("experts.") + 8;
    held.push_back(name.substr(at, name.find('.', at) - at));
  }
  return held;
}

TEST(ExpertShares, DealOutAsManyExpertsAsThereAre) {
  for (const ExpertPlacement placement : {ExpertPlacement::kLinear, ExpertPlacement::kRoundRobin}) {
    for (int experts = 0; experts < 20; ++experts) {
      for (int ranks = 1; ranks < 9; ++ranks) {
        std::map<std::int64_t, int> owners;
        for (int rank = 0; rank < ranks; ++rank) {
          const LocalExperts local = local_experts(experts, ranks, rank, placement);
          EXPECT_GE(local.count, experts / ranks);
          EXPECT_LE(local.count, experts / ranks + 1);
          for (std::int64_t i = 0; i < local.count; ++i) ++owners[local.first + i * local.step];
        }
        EXPECT_EQ(owners.size(), static_cast<std::size_t>(experts));
        for (const auto& [expert, times] : owners) {
          EXPECT_EQ(times, 1) << expert;
          EXPECT_LT(expert, experts);
        }
      }
    }
  }
}

TEST(ExpertLayout, OfSevenExpertsTheFirstOfTwoRanksHoldsFour) {
  const Checkpoint checkpoint = fixture_checkpoint("qwen3_moe_7");
  for (const ParallelSizes& sizes : {with_ep(1, 1, 2), with_ep(2, 1, 1)}) {
    EXPECT_THAT(experts_held(program_of(checkpoint, {}, sizes, 0), checkpoint),
                ElementsAre("0", "1", "2", "3"));
    EXPECT_THAT(experts_held(program_of(checkpoint, {}, sizes, 1), checkpoint),
                ElementsAre("4", "5", "6"));
  }
}

TEST(ExpertLayout, RoundRobinHoldsEveryNthExpert) {
  const Checkpoint checkpoint = fixture_checkpoint("deepseek_v3");
  LayoutRequest request;
  request.placement = ExpertPlacement::kRoundRobin;
  EXPECT_THAT(experts_held(program_of(checkpoint, request, with_ep(1, 1, 2), 1), checkpoint),
              ElementsAre("1", "3", "5", "7"));
  request.all2all_backend = "deepep_low_latency";
  EXPECT_THAT(experts_held(program_of(checkpoint, request, with_ep(2, 1, 2), 3), checkpoint),
              ElementsAre("3", "7"));
}

TEST(ExpertLayout, RoundRobinGivesWayWhereVllmDoes) {
  const auto notes = [](const char* family, const ParallelSizes& sizes,
                        const std::string& backend) {
    const Checkpoint checkpoint = fixture_checkpoint(family);
    LayoutRequest request;
    request.placement = ExpertPlacement::kRoundRobin;
    request.all2all_backend = backend;
    const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
    return open_layout(checkpoint, spec, request, sizes)->notes().warnings;
  };
  const std::string usual = "allgather_reducescatter";
  EXPECT_THAT(notes("deepseek_v3", with_ep(1, 1, 2), usual), IsEmpty());
  EXPECT_THAT(notes("deepseek_v3", with_ep(2, 1, 2), "nixl_ep"),
              ElementsAre(HasSubstr("pad the experts' hidden_size 128")));
  EXPECT_THAT(notes("deepseek_v3", with_ep(2, 1, 2), usual),
              ElementsAre(HasSubstr("deepep_low_latency or nixl_ep")));
  EXPECT_THAT(notes("deepseek_v3", {1, 1, 2}, usual), ElementsAre(HasSubstr("not spread")));
  // One group of experts (deepseek_v2), or a model that has no groups.
  EXPECT_THAT(notes("deepseek_v2", with_ep(1, 1, 2), usual),
              ElementsAre(HasSubstr("several groups")));
  EXPECT_THAT(notes("mixtral", with_ep(1, 1, 2), usual), ElementsAre(HasSubstr("several groups")));
  const Checkpoint checkpoint = fixture_checkpoint("deepseek_v3");
  LayoutRequest request;
  request.placement = ExpertPlacement::kRoundRobin;
  EXPECT_EQ(program_of(checkpoint, request, with_ep(2, 1, 2), 1),
            program_of(checkpoint, {}, with_ep(2, 1, 2), 1));
}

// vLLM 0.32 config/parallel.py, use_sequence_parallel_moe.
TEST(ExpertLayout, SharedExpertsAreWholeUnderSequenceParallelMoeAlone) {
  const auto rows = [](const char* family, const std::string& name, const ParallelSizes& sizes,
                       const std::string& backend) {
    const Checkpoint checkpoint = fixture_checkpoint(family);
    LayoutRequest request;
    request.all2all_backend = backend;
    return tensor_named(program_of(checkpoint, request, sizes, 1), "model.layers.1.mlp." + name)
        .shape[0];
  };
  const std::string usual = "allgather_reducescatter";
  const std::string deepseek = "shared_experts.gate_up_proj.weight";  // 2 x 64 rows
  EXPECT_EQ(rows("deepseek_v3", deepseek, with_ep(2, 1, 2), usual), 128);
  EXPECT_EQ(rows("deepseek_v3", deepseek, with_ep(2, 1, 2), "flashinfer_nvlink_two_sided"), 64);
  EXPECT_EQ(rows("deepseek_v3", deepseek, with_ep(1, 1, 2), usual), 64);
  EXPECT_EQ(rows("deepseek_v3", deepseek, {2, 1, 2}, usual), 64);
  EXPECT_EQ(rows("deepseek_v3", deepseek, with_ep(2, 1, 1), usual), 128);
  // Qwen2-MoE's shared expert (2 x 96 rows) is sliced all the same.
  EXPECT_EQ(rows("qwen2_moe", "shared_expert.gate_up_proj.weight", with_ep(2, 1, 2), usual), 96);
}

TEST(ExpertLayout, HfKeepsStoredNamesOfTheExpertsThatAreHeld) {
  const Checkpoint checkpoint = fixture_checkpoint("mixtral");
  std::vector<std::string> gates;
  for (const TargetTensor& tensor :
       program_of(checkpoint, layout("hf"), with_ep(1, 1, 2), 1).tensors) {
    if (tensor.name.starts_with("model.layers.0.block_sparse_moe")) gates.push_back(tensor.name);
  }
  const std::string at = "model.layers.0.block_sparse_moe.";
  EXPECT_THAT(gates, testing::UnorderedElementsAre(
                         at + "gate.weight", at + "experts.2.w1.weight", at + "experts.2.w2.weight",
                         at + "experts.2.w3.weight", at + "experts.3.w1.weight",
                         at + "experts.3.w2.weight", at + "experts.3.w3.weight"));
}

TEST(ExpertLayout, HfKeepsStoredAxesOfFusedExperts) {
  const Checkpoint checkpoint = fixture_checkpoint("gpt_oss");
  const std::string name = "model.layers.0.mlp.experts.gate_up_proj";  // [4, 128, 384]
  const CopyProgram sliced = program_of(checkpoint, layout("hf"), {1, 1, 2}, 1);
  EXPECT_EQ(tensor_named(sliced, name).shape, (Dims{4, 128, 192}));
  const auto source = std::ranges::find(checkpoint.tensors, name, &SourceTensor::name);
  const Bytes whole = rule_bytes(*source);
  Bytes right;
  for (std::size_t row = 0; row < 4U * 128U; ++row) {
    const auto from = whole.begin() + static_cast<std::ptrdiff_t>((row * 384 + 192) * 2);
    right.insert(right.end(), from, from + 384);
  }
  const auto at = std::ranges::find(sliced.tensors, name, &TargetTensor::name);
  EXPECT_EQ(execute(sliced, checkpoint)[static_cast<std::size_t>(at - sliced.tensors.begin())],
            right);
  EXPECT_EQ(tensor_named(program_of(checkpoint, layout("hf"), with_ep(1, 1, 2), 1), name).shape,
            (Dims{2, 128, 384}));
}

// Of a bias that all ranks add up one holds the values, the others zeros.
TEST(ExpertLayout, ADownBiasOfSlicedExpertsIsOnTheFirstRankAlone) {
  const Checkpoint checkpoint = fixture_checkpoint("gpt_oss");
  const std::string name = "model.layers.0.mlp.experts.routed_experts.w2_bias";
  const auto moves = [&](const ParallelSizes& sizes, int rank) {
    return tensor_named(program_of(checkpoint, {}, sizes, rank), name).moves.size();
  };
  EXPECT_EQ(moves({1, 1, 2}, 0), 1U);
  EXPECT_EQ(moves({1, 1, 2}, 1), 0U);
  EXPECT_EQ(moves({2, 1, 1}, 1), 0U);
  EXPECT_EQ(moves(with_ep(1, 1, 2), 1), 1U);
  EXPECT_EQ(tensor_named(program_of(checkpoint, {}, {1, 1, 2}, 1), name).fill, 0.0);
}

TEST(ExpertLayout, EmbeddingsAndHeadAreOnEveryStageWhereVllmBuildsThem) {
  const auto has = [](const char* family, const std::string& name, int stage) {
    const CopyProgram program = program_of(fixture_checkpoint(family), {}, {1, 4, 1}, stage);
    return std::ranges::find(program.tensors, name, &TargetTensor::name) != program.tensors.end();
  };
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    for (int stage = 0; stage < 4; ++stage) {
      EXPECT_TRUE(has(family, "model.embed_tokens.weight", stage)) << family;
      EXPECT_TRUE(has(family, "lm_head.weight", stage)) << family;
      EXPECT_TRUE(has(family, "model.norm.weight", stage)) << family;
    }
  }
  EXPECT_TRUE(has("deepseek_v3", "model.embed_tokens.weight", 0));
  EXPECT_FALSE(has("deepseek_v3", "lm_head.weight", 0));
  EXPECT_FALSE(has("deepseek_v3", "model.embed_tokens.weight", 3));
  EXPECT_TRUE(has("deepseek_v3", "lm_head.weight", 3));
}

TEST(ExpertLayout, LayersOfADraftAreLeftAloneWithTheReason) {
  const CopyProgram program = program_of(fixture_checkpoint("deepseek_v3_mtp"), {}, {1, 1, 1}, 0);
  ASSERT_FALSE(program.left_alone.empty());
  for (const LeftAlone& left : program.left_alone) {
    EXPECT_THAT(left.reason, HasSubstr("num_nextn_predict_layers 1"));
  }
}

std::string refusal(const char* family, const ParallelSizes& sizes,
                    const LayoutRequest& request = {}) {
  try {
    program_of(fixture_checkpoint(family), request, sizes, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kModel);
    return error.what();
  }
  return "nothing was refused";
}

TEST(ExpertLayout, WhatVllmRefusesIsRefusedWithTheReason) {
  EXPECT_THAT(refusal("llama", with_ep(1, 1, 2)), HasSubstr("--enable-expert-parallel"));
  EXPECT_THAT(refusal("gpt_oss", with_ep(3, 1, 1)), HasSubstr("4 experts do not divide by the 3"));
  EXPECT_THAT(refusal("qwen3_moe", {1, 1, 16}),
              HasSubstr("--tensor-parallel-size 16 is greater than the number of experts"));
  EXPECT_THAT(refusal("mixtral", {5, 1, 1}),
              AllOf(HasSubstr("intermediate_size 192"), HasSubstr("--data-parallel-size 5"),
                    HasSubstr("--enable-expert-parallel")));
  ParallelSizes stages{1, 2, 1};
  stages.stage_layers = {1, 2};
  EXPECT_THAT(refusal("mixtral", stages),
              AllOf(HasSubstr("--pipeline-layers 1,2"), HasSubstr("num_hidden_layers is 4")));
}

TEST(ExpertLayout, WhatTheEngineWouldHoldInAFormThatIsNotBuiltIsRefused) {
  // A quarter of 256 is half a block of 128: vLLM makes blocks of 64 of it.
  EXPECT_THAT(refusal("deepseek_v3_fp8", {1, 1, 4}),
              AllOf(HasSubstr("64 rows"), HasSubstr("finer ones"), HasSubstr("not built")));
  LayoutRequest request;
  request.moe_backend = "flashinfer_trtllm";
  EXPECT_THAT(refusal("mixtral", {1, 1, 1}, request),
              AllOf(HasSubstr("flashinfer_trtllm"), HasSubstr("192 columns"), HasSubstr("128")));
  request.moe_backend = "triton";
  EXPECT_EQ(refusal("mixtral", {1, 1, 1}, request), "nothing was refused");
  request = {};
  request.moe_backend = "flashinfer_trtllm";
  request.layout = "hf";
  EXPECT_EQ(refusal("mixtral", {1, 1, 1}, request), "nothing was refused");
}

TEST(ExpertLayout, FewerExpertsThanRanksArePlannedButNotServed) {
  const Checkpoint checkpoint = fixture_checkpoint("mixtral");
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
  const ParallelSizes sizes = with_ep(6, 1, 1);
  const auto model = open_layout(checkpoint, spec, {}, sizes);
  EXPECT_THAT(model->notes().unservable, HasSubstr("4 experts are fewer than the 6 ranks"));
  const CopyProgram last = model->program(coords_of(5, sizes));
  const std::string name = "model.layers.0.block_sparse_moe.experts.routed_experts.w13_weight";
  EXPECT_EQ(tensor_named(last, name).shape, (Dims{0, 384, 128}));
  check_program(last, checkpoint);
  EXPECT_THAT(open_layout(checkpoint, spec, {}, with_ep(4, 1, 1))->notes().unservable, IsEmpty());
}

TEST(ExpertLayout, StagesMayHaveLayersOfTheirOwn) {
  const Checkpoint checkpoint = fixture_checkpoint("deepseek_v3");
  ParallelSizes sizes = with_ep(2, 2, 1);
  sizes.stage_layers = {1, 3};
  std::vector<std::string> norms;
  for (const TargetTensor& tensor : program_of(checkpoint, {}, sizes, 1).tensors) {
    if (tensor.name.ends_with(".input_layernorm.weight")) norms.push_back(tensor.name);
  }
  EXPECT_THAT(norms, ElementsAre("model.layers.1.input_layernorm.weight",
                                 "model.layers.2.input_layernorm.weight",
                                 "model.layers.3.input_layernorm.weight"));
}

// How often all ranks together take each byte of a stored tensor.
std::map<std::string, std::vector<int>> times_taken(const Checkpoint& checkpoint,
                                                    const LayoutRequest& request,
                                                    const ParallelSizes& sizes) {
  std::map<std::string, std::vector<int>> taken;
  for (const SourceTensor& tensor : checkpoint.tensors) {
    taken[tensor.name].assign(static_cast<std::size_t>(element_count(tensor.shape)), 0);
  }
  for (int rank = 0; rank < sizes.world(); ++rank) {
    for (const TargetTensor& tensor : program_of(checkpoint, request, sizes, rank).tensors) {
      for (const Move& move : tensor.moves) {
        std::vector<int>& times = taken[checkpoint.tensors[move.source].name];
        for (std::int64_t i = 0; i < element_count(move.sizes); ++i) {
          std::int64_t at = move.source_offset;
          std::int64_t rest = i;
          for (std::size_t axis = move.sizes.size(); axis-- > 0;) {
            at += rest % move.sizes[axis] * move.source_strides[axis];
            rest /= move.sizes[axis];
          }
          ++times[static_cast<std::size_t>(at)];
        }
      }
    }
  }
  return taken;
}

bool is_of_an_expert(const std::string& name) { return name.find(".experts.") != name.npos; }

TEST(ExpertLayout, RanksOfAStageTakeEveryExpertOnceHoweverTheyShareThem) {
  std::mt19937 random(5);
  const auto pick = [&](std::initializer_list<int> from) {
    return *(from.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                0, static_cast<std::ptrdiff_t>(from.size()) - 1)(random));
  };
  const char* families[] = {"mixtral",     "qwen2_moe", "qwen3_moe",      "deepseek_v2",
                            "deepseek_v3", "gpt_oss",   "deepseek_v3_fp8"};
  for (int round = 0; round < 24; ++round) {
    const std::string family = families[round % 7];
    ParallelSizes sizes{pick({1, 2}), pick({1, 2}), pick({1, 2})};
    if (family == "deepseek_v3_fp8") sizes = {1, sizes.pp, sizes.tp};  // 256 wide: two blocks
    sizes.expert_parallel = pick({0, 1}) == 1;
    LayoutRequest request = layout(pick({0, 1}) == 1 ? "vllm" : "hf");
    if (pick({0, 1}) == 1) request.placement = ExpertPlacement::kRoundRobin;
    SCOPED_TRACE(testing::Message()
                 << family << " " << request.layout << " dp " << sizes.dp << " pp " << sizes.pp
                 << " tp " << sizes.tp << " ep " << sizes.expert_parallel);
    const auto taken = times_taken(fixture_checkpoint(family), request, sizes);
    for (const auto& [name, times] : taken) {
      const bool once = is_of_an_expert(name);
      const auto [least, most] = std::ranges::minmax(times);
      EXPECT_EQ(least > 0, true) << name;
      if (once) {
        EXPECT_EQ(most, 1) << name;
      }
      EXPECT_EQ(least, most) << name << " is taken by some ranks only in parts";
    }
  }
}

TEST(ExpertLayout, SharesAreWhatProgramsHoldAndReplicasShareThem) {
  for (const char* family :
       {"mixtral", "qwen2_moe", "qwen3_moe_7", "deepseek_v3", "gpt_oss", "deepseek_v3_fp8"}) {
    const Checkpoint checkpoint = fixture_checkpoint(family);
    const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
    for (const ParallelSizes& sizes :
         {ParallelSizes{1, 2, 2}, with_ep(1, 2, 2), with_ep(2, 1, 1)}) {
      for (const std::string name : {"vllm", "hf"}) {
        const auto model = open_layout(checkpoint, spec, layout(name), sizes);
        std::map<int, CopyProgram> by_share;
        for (int global = 0; global < sizes.world(); ++global) {
          const RankCoords rank = coords_of(global, sizes);
          const CopyProgram program = model->program(rank);
          check_program(program, checkpoint);
          std::uint64_t held = 0;
          std::uint64_t read = 0;
          for (const TargetTensor& tensor : program.tensors) {
            if (!tensor.alias) held += extent_bytes(tensor);
            for (const Move& move : tensor.moves) {
              read +=
                  element_bytes(element_count(move.sizes), checkpoint.tensors[move.source].dtype);
            }
          }
          EXPECT_EQ(model->share(rank), (ShareSize{held, read}))
              << family << " " << name << " rank " << global;
          const auto [at, is_new] = by_share.try_emplace(model->share_id(rank), program);
          if (!is_new) {
            EXPECT_EQ(at->second, program);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace preload::test
