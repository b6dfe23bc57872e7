// SPDX-License-Identifier: Apache-2.0
#include "model/kernel_backend.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace preload {
namespace {

// vLLM 0.32 config/kernel.py, MoEBackend, and what layers/fused_moe/oracle/mxfp4.py makes of them
// on CUDA (map_mxfp4_backend, mxfp4_round_up_hidden_size_and_intermediate_size). Those without
// sizes have no kernels for MXFP4 experts, or only on other devices.
struct Backend {
  std::string_view name;
  std::optional<ExpertSizes> mxfp4 = {};
};
constexpr auto kBackends = std::to_array<Backend>({
    {kAutoBackend},
    {"aiter"},
    {"aiter_mega_moe"},
    {"aiter_triton_mxfp4_bf16"},
    {"b12x", ExpertSizes{.hidden = 1, .intermediate = 32, .exact = true}},
    {"batched_triton"},
    // No choice of the user's in vLLM, which takes it by itself on CPUs.
    {"cpu", ExpertSizes{.hidden = 32, .intermediate = 32}},
    {"cutlass"},
    {"deep_gemm", ExpertSizes{.hidden = 128, .intermediate = 128}},
    {"deep_gemm_mega_moe"},
    {"emulation", ExpertSizes{.hidden = 32, .intermediate = 32}},
    {"flashinfer_b12x"},
    {"flashinfer_cutedsl"},
    {"flashinfer_cutlass", ExpertSizes{.hidden = 128, .intermediate = 128}},
    {"flashinfer_moe_ep_cutedsl"},
    {"flashinfer_moe_ep_mega_deep_gemm"},
    {"flashinfer_trtllm", ExpertSizes{.hidden = 256, .intermediate = 128}},
    {"flydsl"},
    {"hpc"},
    {"humming", ExpertSizes{.hidden = 1, .intermediate = 64}},
    {"marlin", ExpertSizes{.hidden = 256, .intermediate = 128}},
    {"rdna3"},
    {"triton", ExpertSizes{.hidden = 1, .intermediate = 64}},
    {"triton_unfused", ExpertSizes{.hidden = 1, .intermediate = 64}},
});

}  // namespace

const ExpertSizes* mxfp4_expert_sizes(std::string_view moe_backend) noexcept {
  const auto at = std::ranges::find(kBackends, moe_backend, &Backend::name);
  return at != kBackends.end() && at->mxfp4 ? &*at->mxfp4 : nullptr;
}

std::vector<std::string_view> mxfp4_backends() {
  std::vector<std::string_view> names;
  for (const Backend& backend : kBackends) {
    if (backend.mxfp4) names.push_back(backend.name);
  }
  return names;
}

std::vector<std::string_view> moe_backends() {
  std::vector<std::string_view> names;
  for (const Backend& backend : kBackends) names.push_back(backend.name);
  return names;
}

}  // namespace preload
