// SPDX-License-Identifier: Apache-2.0
#include "manual/choices.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "model/expert_share.hpp"

namespace preload::manual {
namespace {

struct Choices {
  std::string_view option;
  std::string_view words;
};
constexpr auto kChoices = std::to_array<Choices>({
    {"device", "cuda host"},
    {"dtype", "auto float16 bfloat16 float32"},
    {"expert-placement-strategy", "linear round_robin"},
    {"export", "vmm cuda-ipc"},
    {"kind", "nccl_tuner flashinfer_autotune compile_cache"},
    {"kv-cache-dtype", "auto float16 bfloat16 fp8 fp8_e4m3 fp8_e5m2"},
    {"layout", "vllm hf transformers"},
    {"load-format", "auto safetensors"},
    {"log-level", "debug info warn error off"},
    {"reader", "auto pread mmap direct uring"},
    {"role", "target draft"},
    {"spread", "auto always never"},
    {"warmup-exec-scope", "rank replica"},
});

}  // namespace

std::string value_words(std::string_view option) {
  if (option == "all2all-backend") return fmt::format("{}", fmt::join(all2all_backends(), " "));
  const auto at = std::ranges::find(kChoices, option, &Choices::option);
  return at == kChoices.end() ? std::string() : std::string(at->words);
}

std::string positional_words(const cli::CommandSpec& command) {
  std::string words(command.positional);
  std::ranges::replace(words, '|', ' ');
  return words;
}

ValueKind value_kind(const cli::OptionSpec& option) {
  if (option.value.empty()) return ValueKind::kNone;
  if (!value_words(option.name).empty()) return ValueKind::kWords;
  for (const std::string_view path : {"DIR", "DIR_OR_HF_ID", "FILE"}) {
    if (option.value == path) return ValueKind::kPath;
  }
  return ValueKind::kFree;
}

}  // namespace preload::manual
