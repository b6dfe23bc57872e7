// SPDX-License-Identifier: Apache-2.0
#include "cli/kernel_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "cli/options.hpp"
#include "model/kernel_backend.hpp"

namespace preload::cli {
namespace {

using nlohmann::json;

// Members of vLLM 0.32's KernelConfig (vllm/config/kernel.py). Of these only moe_backend decides
// how weights lie before the engine works on them; linear kernels repack what was loaded.
constexpr std::string_view kMoeBackend = "moe_backend";
constexpr auto kMembers = std::to_array<std::string_view>({
    "enable_cutedsl_warmup",
    "enable_flashinfer_autotune",
    "enable_jit_warmup",
    "enable_rocm_segmented_attn_autotune",
    "ir_op_priority",
    "linear_backend",
    "linear_backend_per_quant",
    kMoeBackend,
    "sparse_indexer_topk_backend",
});

template <class Names>
std::string suggestion(std::string_view name, const Names& names) {
  const auto near = nearest(name, {names.begin(), names.end()});
  return near ? fmt::format(": did you mean \"{}\"?", *near) : std::string();
}

}  // namespace

std::string moe_backend_of(std::string_view kernel_config) {
  const json config = json::parse(kernel_config, nullptr, false);
  if (!config.is_object()) {
    throw Error(Errc::kUsage,
                fmt::format("--kernel-config must be a JSON object: {}", kernel_config));
  }
  for (const auto& [name, value] : config.items()) {
    if (std::ranges::find(kMembers, name) != kMembers.end()) continue;
    throw Error(Errc::kUsage, fmt::format("--kernel-config: vLLM 0.32 knows no \"{}\"{}", name,
                                          suggestion(name, kMembers)));
  }
  const auto at = config.find(kMoeBackend);
  if (at == config.end()) return std::string(kAutoBackend);
  if (!at->is_string()) {
    throw Error(Errc::kUsage, fmt::format("--kernel-config: \"{}\" must be a text, not {}",
                                          kMoeBackend, at->dump()));
  }
  // As vLLM reads it.
  std::string backend = at->get<std::string>();
  std::ranges::transform(backend, backend.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  const std::vector<std::string_view> known = moe_backends();
  if (std::ranges::find(known, backend) == known.end()) {
    throw Error(
        Errc::kUsage,
        fmt::format("--kernel-config: vLLM 0.32 knows no \"{}\" {}{}; it takes {}", kMoeBackend,
                    at->dump(), suggestion(backend, known), fmt::join(known, ", ")));
  }
  return backend;
}

}  // namespace preload::cli
