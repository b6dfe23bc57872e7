// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/weight_format.hpp"

// What quantization_config says of a checkpoint's weights.
namespace preload {
namespace {

using nlohmann::json;

LayoutRule constant(std::string target, double value, bool vector, std::optional<DType> dtype) {
  LayoutRule rule;
  rule.target = std::move(target);
  rule.constant = value;
  rule.constant_vector = vector;
  rule.dtype = dtype;
  return rule;
}

FormatChoice refused(std::string why) { return {std::nullopt, std::move(why)}; }

// [rows, columns] of a block; nothing unless they are two positive numbers.
std::optional<std::pair<std::int64_t, std::int64_t>> block_of(const json& value) {
  if (!value.is_array() || value.size() != 2) return std::nullopt;
  for (const json& side : value) {
    if (!side.is_number_integer() || side.get<std::int64_t>() < 1) return std::nullopt;
  }
  return std::pair(value[0].get<std::int64_t>(), value[1].get<std::int64_t>());
}

// What attention keeps until calibrated scales are loaded (layers/quantization/kv_cache.py).
std::vector<LayoutRule> uncalibrated() {
  std::vector<LayoutRule> rules;
  for (const char* name : {"q_scale", "k_scale", "v_scale", "prob_scale"}) {
    rules.push_back(constant(name, -1, false, std::nullopt));
  }
  return rules;
}

// DeepSeek's format. vLLM 0.32 layers/quantization/fp8.py and kv_cache.py: block scales are
// weight_scale_inv; attention holds scales of -1 until calibrated ones are loaded.
FormatChoice fp8_format(const json& config) {
  const json scheme = config.value("activation_scheme", json("dynamic"));
  if (scheme != "dynamic" && scheme != "static") {
    return refused(fmt::format("fp8 with activation_scheme {} is not built", scheme.dump()));
  }
  WeightFormat format{.scale = "weight_scale", .per_weight = true};
  if (const json size = config.value("weight_block_size", json()); !size.is_null()) {
    const auto block = block_of(size);
    if (!block) return refused("fp8 with a weight_block_size other than two numbers is not built");
    if (scheme == "static") return refused("fp8 blocks with static input scales are not built");
    format = {
        .scale = "weight_scale_inv", .block_rows = block->first, .block_columns = block->second};
  } else if (scheme == "static") {
    format.input_scale = "input_scale";
  }
  format.attention = uncalibrated();
  return {std::move(format), {}};
}

// vLLM 0.32 layers/quantization/modelopt.py, ModelOptFp8Config with the algorithm FP8. The format
// stands in config.json, or as ModelOpt's own file has it under "quantization".
FormatChoice modelopt_format(const json& config) {
  const json nested = config.value("quantization", json());
  json algorithm = (nested.is_object() ? nested : config).value("quant_algo", json());
  std::string name = algorithm.is_string() ? algorithm.get<std::string>() : algorithm.dump();
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (name.find("NVFP4") != std::string::npos) {
    return refused(fmt::format(
        "ModelOpt's {} packs 4-bit floats whose engine form depends on its kernels, and sharding "
        "rules for that are not built",
        name));
  }
  if (name != "FP8") return refused(fmt::format("ModelOpt's {} is not built", name));
  WeightFormat format{.scale = "weight_scale", .per_weight = true, .input_scale = "input_scale"};
  format.attention = uncalibrated();
  return {std::move(format), {}};
}

// vLLM 0.32 layers/quantization/compressed_tensors/: weights of 8-bit floats with one scale a row
// or a block; attention holds scales of 1 and zero points of 0.
FormatChoice compressed_format(const json& config) {
  const std::string kind = config.value("format", json()).dump();
  const json& groups = config.value("config_groups", json::object());
  if (!groups.is_object() || groups.size() != 1) {
    return refused("compressed-tensors with several config_groups, or none, is not built");
  }
  const json& group = *groups.begin();
  const json weights = group.is_object() ? group.value("weights", json::object()) : json::object();
  const json inputs = group.is_object() ? group.value("input_activations", json()) : json();
  const bool float8 = weights.is_object() && weights.value("num_bits", json()) == 8 &&
                      weights.value("type", json()) == "float";
  if (!float8) {
    return refused(
        fmt::format("compressed-tensors of format {} is not built: only 8-bit float "
                    "weights are",
                    kind));
  }
  const json cache = config.value("kv_cache_scheme", json());
  const bool one_scale =
      cache.is_null() || (cache.is_object() && cache.value("strategy", json()) == "tensor");
  if (!one_scale) {
    return refused(fmt::format(
        "compressed-tensors with the kv_cache_scheme {} is not built: only one scale a layer is",
        cache.dump()));
  }
  WeightFormat format{.scale = "weight_scale"};
  const bool fixed = inputs.is_object() && inputs.value("dynamic", json()) != true;
  const json strategy = weights.value("strategy", json());
  if (strategy == "block") {
    const auto block = block_of(weights.value("block_structure", json()));
    if (!block) return refused("compressed-tensors blocks without a block_structure are not built");
    format.block_rows = block->first;
    format.block_columns = block->second;
  } else if (strategy == "tensor") {
    format.per_weight = true;
  } else if (strategy != "channel") {
    return refused(fmt::format("compressed-tensors with the weight strategy {} is not built",
                               strategy.dump()));
  }
  if (fixed && !format.per_weight) {
    return refused("compressed-tensors with static input scales is built for tensor scales only");
  }
  if (fixed) format.input_scale = "input_scale";
  for (const char* name : {"k_scale", "v_scale", "q_scale"}) {
    format.attention.push_back(constant(name, 1, true, DType::kF32));
  }
  for (const char* name : {"k_zero_point", "v_zero_point", "q_zero_point"}) {
    format.attention.push_back(constant(name, 0, true, std::nullopt));
  }
  return {std::move(format), {}};
}

// vLLM 0.32 layers/quantization/mxfp4.py, GptOssMxfp4Config: for no other model.
constexpr std::string_view kMxfp4Architecture = "GptOssForCausalLM";

FormatChoice mxfp4_format(const LayoutRequest& request) {
  WeightFormat format;
  if (request.layout != "vllm") {
    format.mxfp4 = ExpertSizes{};
    return {std::move(format), {}};
  }
  const ExpertSizes* sizes = mxfp4_expert_sizes(request.moe_backend);
  if (sizes == nullptr) {
    const std::string given = request.moe_backend == kAutoBackend
                                  ? std::string("none is named")
                                  : fmt::format("{} has none for them", request.moe_backend);
    return refused(fmt::format(
        "the shapes of its MXFP4 experts depend on the engine's kernels, and {}: name the "
        "engine's MoE backend with --kernel-config '{{\"moe_backend\": \"NAME\"}}', one of {}",
        given, fmt::join(mxfp4_backends(), ", ")));
  }
  format.mxfp4 = *sizes;
  return {std::move(format), {}};
}

}  // namespace

FormatChoice weight_format(const ModelSpec& spec, const LayoutRequest& request) {
  const json config = json::parse(spec.quantization_json, nullptr, false);
  if (!config.is_object()) return refused("its quantization_config is no object");
  if (spec.quantization == "fp8") return fp8_format(config);
  if (spec.quantization == "compressed-tensors") return compressed_format(config);
  if (spec.quantization == "modelopt" || spec.quantization == "modelopt_fp4") {
    return modelopt_format(config);
  }
  const bool mxfp4 = spec.quantization == "mxfp4" || spec.quantization == "gpt_oss_mxfp4";
  if (mxfp4 && spec.architecture == kMxfp4Architecture) return mxfp4_format(request);
  return refused(
      fmt::format("its quantization_config says {}, and sharding rules for that are not "
                  "built",
                  spec.quantization));
}

}  // namespace preload
