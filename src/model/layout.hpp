// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/copy_program.hpp"
#include "model/draft.hpp"
#include "model/kernel_backend.hpp"
#include "model/model_spec.hpp"
#include "plan/topology.hpp"

namespace preload {

// Which experts a rank of expert parallelism holds: neighbours, or every n-th.
enum class ExpertPlacement : std::uint8_t { kLinear, kRoundRobin };

// What the user asks the weights to look like. The same on every rank.
struct LayoutRequest {
  std::string layout = "vllm";      // "vllm", "hf" or "transformers"
  std::optional<DType> dtype;       // --dtype; unset is auto
  std::vector<std::string> ignore;  // checkpoint tensors to leave alone (names or globs)
  ExpertPlacement placement = ExpertPlacement::kLinear;
  std::string all2all_backend = "allgather_reducescatter";  // of expert parallelism
  std::string moe_backend{kAutoBackend};                    // of the engine's expert kernels
  std::string kv_cache_dtype = "auto";     // of the engine's KV cache; changes no layout
  std::optional<DraftRequest> draft = {};  // set: not the model itself, but a draft for it
  friend bool operator==(const LayoutRequest&, const LayoutRequest&) = default;
};

// The spec of the model that the request asks for; of a draft with vLLM's name for its
// architecture, or that of the checkpoint where it has none.
ModelSpec layout_spec(const Checkpoint& checkpoint, const LayoutRequest& request,
                      const std::string& hf_overrides);

// The copy program of one rank. Pure: the same inputs give the same program on every machine.
// Throws Error(kModel) listing every tensor that no rule consumes, every needed one that is absent
// and every shape that contradicts the config, or why the model cannot be sharded like this.
CopyProgram make_program(const Checkpoint& checkpoint, const ModelSpec& spec,
                         const LayoutRequest& request, const ParallelSizes& sizes,
                         const RankCoords& rank);

// Throws Error(kUsage) with the remedy when the layout has no shards of that kind.
void check_layout_sizes(const LayoutRequest& request, const ParallelSizes& sizes);

// Architectures with sharding rules, sorted: what a refusal lists.
std::vector<std::string> known_architectures();

}  // namespace preload
