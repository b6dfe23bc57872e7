// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/layout.hpp"
#include "model/model_spec.hpp"

namespace preload {

struct Family;

// `count` experts from `first`, each `step` after the one before.
struct LocalExperts {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
  friend bool operator==(const LocalExperts&, const LocalExperts&) = default;
};

// How the ranks of a pipeline stage share a model's experts, as vLLM's FusedMoEParallelConfig.make
// has it: with expert parallelism dp * tp ranks hold whole experts, without it each holds a slice
// of all.
struct ExpertShare {
  int tp_size = 1;  // ranks that share each expert
  int tp_rank = 0;
  int ep_size = 1;  // ranks that the experts are spread over
  int ep_rank = 0;
  ExpertPlacement placement = ExpertPlacement::kLinear;  // the one that takes effect
  LocalExperts experts;
  bool shared_whole = false;  // shared experts are whole on every rank (sequence-parallel MoE)
  friend bool operator==(const ExpertShare&, const ExpertShare&) = default;
};
ExpertShare expert_share(const Family& family, const ModelSpec& spec, const LayoutRequest& request,
                         const ParallelSizes& sizes, const RankCoords& rank);

// Why the placement that was asked for does not take effect; empty when it does.
std::string placement_fallback(const Family& family, const ModelSpec& spec,
                               const LayoutRequest& request, const ParallelSizes& sizes);

// The experts of one of `parts` ranks: the first ranks hold one more where they do not divide.
LocalExperts local_experts(std::int64_t experts, int parts, int index,
                           ExpertPlacement placement) noexcept;

// Whether shared experts are whole or sliced by what --all2all-backend says.
bool decides_shared_experts(const Family& family, const ModelSpec& spec,
                            const ParallelSizes& sizes);

// Whether vLLM pads the experts' hidden size for its all-to-all kernels, which is not done here.
bool pads_experts(const ModelSpec& spec, const LayoutRequest& request, const ParallelSizes& sizes,
                  DType dtype);

std::string_view placement_name(ExpertPlacement placement) noexcept;  // as the flag takes it
// vLLM's names of --all2all-backend that a user may choose.
std::vector<std::string_view> all2all_backends();

}  // namespace preload
