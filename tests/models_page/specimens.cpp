// SPDX-License-Identifier: Apache-2.0
#include "models_page/specimens.hpp"

#include <array>

namespace preload::test {
namespace {

constexpr auto kFamilies = std::to_array<Specimen>({
    {"Llama 2, 3, 3.x", "llama"},
    {"Mistral", "mistral"},
    {"Mixtral", "mixtral"},
    {"Qwen2, Qwen2.5", "qwen2"},
    {"Qwen3", "qwen3"},
    {"Qwen2-MoE", "qwen2_moe"},
    {"Qwen3-MoE", "qwen3_moe"},
    {"Gemma 2", "gemma2"},
    {"Gemma 3, text", "gemma3"},
    {"Gemma 3, multimodal", "gemma3_mm"},
    {"Phi-3, Phi-4", "phi3"},
    {"DeepSeek-V2", "deepseek_v2"},
    {"DeepSeek-V3, R1, Kimi-K2", "deepseek_v3"},
    {"GPT-OSS, bf16", "gpt_oss"},
    {"Granite", "granite"},
    {"GLM-4", "glm4"},
});

constexpr auto kQuantised = std::to_array<Specimen>({
    {"block FP8, dense", "qwen3_fp8"},
    {"block FP8, MLA and experts", "deepseek_v3_fp8"},
    {"channel FP8 (compressed-tensors)", "llama_ct_fp8"},
    {"FP8, one scale a weight (ModelOpt)", "llama_modelopt"},
    {"the same, experts", "qwen3_moe_modelopt"},
    {"MXFP4 experts, no backend named", "gpt_oss_mxfp4"},
    {"MXFP4 experts, `--kernel-config.moe_backend marlin`", "gpt_oss_mxfp4", "marlin"},
});

}  // namespace

std::span<const Specimen> family_specimens() noexcept { return kFamilies; }
std::span<const Specimen> quantised_specimens() noexcept { return kQuantised; }

}  // namespace preload::test
