// SPDX-License-Identifier: Apache-2.0
#include "model/expert_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/family.hpp"

namespace preload {
namespace {

// vLLM 0.32 config/parallel.py, All2AllBackend; "passthrough" is not for users to choose.
// `sequence_parallel`: ParallelConfig.use_sequence_parallel_moe names it. `round_robin`:
// FusedMoEParallelConfig.needs_round_robin_routing_tables does. `hidden`: what its kernels want of
// the hidden size (layers/fused_moe/prepare_finalize/, maybe_roundup_layer_hidden_size).
enum class Hidden : std::uint8_t { kAny, kWholeAtoms, kListed };
struct Backend {
  std::string_view name;
  bool sequence_parallel = false;
  bool round_robin = false;
  Hidden hidden = Hidden::kAny;
};
constexpr auto kBackends = std::to_array<Backend>({
    {"allgather_reducescatter", true, false},
    // Gone from vLLM, which takes the one above for them.
    {"naive", true, false},
    {"pplx", true, false},
    {"deepep_high_throughput", true, false, Hidden::kWholeAtoms},
    {"deepep_low_latency", true, true, Hidden::kListed},
    {"deepep_v2", true, false, Hidden::kWholeAtoms},
    {"mori_high_throughput", true, false},
    {"mori_low_latency", true, false},
    {"moonep", false, false},
    {"nixl_ep", true, true, Hidden::kListed},
    {"flashinfer_all2allv", false, false},
    {"flashinfer_nvlink_two_sided", false, false},
    {"flashinfer_nvlink_one_sided", true, false},
});

const Backend& backend_of(const LayoutRequest& request) {
  const auto at = std::ranges::find(kBackends, request.all2all_backend, &Backend::name);
  return at == kBackends.end() ? kBackends.front() : *at;
}

bool spreads_experts(const ParallelSizes& sizes) {
  return sizes.expert_parallel && sizes.dp * sizes.tp > 1;
}

// Sequence-parallel MoE is for attention that is both replicated and sharded.
bool is_two_dimensional(const ParallelSizes& sizes) { return sizes.tp > 1 && sizes.dp > 1; }

}  // namespace

bool decides_shared_experts(const Family& family, const ModelSpec& spec,
                            const ParallelSizes& sizes) {
  return spreads_experts(sizes) && is_two_dimensional(sizes) &&
         std::ranges::any_of(family.rules, [&](const Rule& rule) {
           return rule.share == Share::kSharedExpert &&
                  (rule.presence == nullptr || rule.presence(spec));
         });
}

bool pads_experts(const ModelSpec& spec, const LayoutRequest& request, const ParallelSizes& sizes,
                  DType dtype) {
  constexpr std::int64_t kAtomBits = 512 * 8;
  constexpr std::int64_t kListed[] = {2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192};
  if (!spreads_experts(sizes) || sizes.dp == 1) return false;
  switch (backend_of(request).hidden) {
    case Hidden::kAny:
      return false;
    case Hidden::kWholeAtoms:
      return spec.hidden_size * dtype_bits(dtype) % kAtomBits != 0;
    case Hidden::kListed:
      return std::ranges::find(kListed, spec.hidden_size) == std::end(kListed);
  }
  return false;
}

std::string_view placement_name(ExpertPlacement placement) noexcept {
  return placement == ExpertPlacement::kLinear ? "linear" : "round_robin";
}

std::string placement_fallback(const Family& family, const ModelSpec& spec,
                               const LayoutRequest& request, const ParallelSizes& sizes) {
  if (request.placement == ExpertPlacement::kLinear) return {};
  if (!spreads_experts(sizes)) return "the experts are not spread over ranks";
  const std::int64_t groups =
      family.experts.groups.empty() ? 0 : spec.config.number(family.experts.groups);
  if (groups < 2) return "vLLM places round-robin only the experts of models with several groups";
  // All-to-all kernels are at work where there are several replicas of the attention.
  if (sizes.dp > 1 && !backend_of(request).round_robin) {
    return fmt::format(
        "with several data-parallel ranks vLLM places experts round-robin only with "
        "--all2all-backend deepep_low_latency or nixl_ep, not {}",
        request.all2all_backend);
  }
  return {};
}

LocalExperts local_experts(std::int64_t experts, int parts, int index,
                           ExpertPlacement placement) noexcept {
  const std::int64_t base = experts / parts;
  const std::int64_t remainder = experts % parts;
  const std::int64_t count = base + (index < remainder ? 1 : 0);
  if (placement == ExpertPlacement::kRoundRobin) return {index, count, parts};
  return {index * base + std::min<std::int64_t>(index, remainder), count, 1};
}

ExpertShare expert_share(const Family& family, const ModelSpec& spec, const LayoutRequest& request,
                         const ParallelSizes& sizes, const RankCoords& rank) {
  if (request.layout == "transformers" && sizes != ParallelSizes{}) {  // every replica is whole
    return expert_share(family, spec, request, ParallelSizes{}, RankCoords{});
  }
  ExpertShare share;
  const int ranks = sizes.dp * sizes.tp;
  const int index = rank.dp * sizes.tp + rank.tp;
  if (spreads_experts(sizes)) {
    share.ep_size = ranks;
    share.ep_rank = index;
    if (placement_fallback(family, spec, request, sizes).empty()) {
      share.placement = request.placement;
    }
    share.shared_whole = backend_of(request).sequence_parallel && is_two_dimensional(sizes);
  } else {
    share.tp_size = ranks;
    share.tp_rank = index;
  }
  share.experts = local_experts(spec.num_experts, share.ep_size, share.ep_rank, share.placement);
  return share;
}

std::vector<std::string_view> all2all_backends() {
  std::vector<std::string_view> names;
  for (const Backend& backend : kBackends) names.push_back(backend.name);
  return names;
}

}  // namespace preload
