// SPDX-License-Identifier: Apache-2.0
#include "cli/speculative_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "cli/options.hpp"

namespace preload::cli {
namespace {

using nlohmann::json;

// Members of vLLM 0.32's SpeculativeConfig (vllm/config/speculative.py) that a user may give.
constexpr auto kMembers = std::to_array<std::string_view>({
    "attention_backend",
    "code_revision",
    "disable_eagle_block_drop",
    "disable_padded_drafter_batch",
    "draft_load_config",
    "draft_sample_method",
    "draft_tensor_parallel_size",
    "dspark_draft_topk",
    "enable_adaptive_verification",
    "enforce_eager",
    "index_share_for_mtp_iteration",
    "kv_cache_dtype",
    "max_model_len",
    "method",
    "model",
    "moe_backend",
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "parallel_drafting",
    "prompt_lookup_max",
    "prompt_lookup_min",
    "quantization",
    "rejection_sample_method",
    "revision",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_min_token_prob",
    "synthetic_acceptance_length",
    "synthetic_acceptance_rates",
    "tensor_parallel_size",
    "use_heterogeneous_vocab",
    "use_local_argmax_reduction",
});

constexpr auto kMethods = std::to_array<std::string_view>(
    {"custom_class", "dflash", "draft_model", "dspark", "eagle", "eagle3", "extract_hidden_states",
     "medusa", "mlp_speculator", "mtp", "ngram", "ngram_gpu", "suffix"});

// The methods that take no weights of their own, or take them from the target's checkpoint.
constexpr auto kNeedNoModel = std::to_array<std::string_view>(
    {"dspark", "extract_hidden_states", "mtp", "ngram", "ngram_gpu", "suffix"});

[[noreturn]] void refuse(const std::string& text) {
  throw Error(Errc::kUsage, "--speculative-config: " + text);
}

std::string text_of(const json& config, const char* name) {
  const auto at = config.find(name);
  if (at == config.end() || at->is_null()) return {};
  if (!at->is_string()) refuse(fmt::format("\"{}\" must be a text, not {}", name, at->dump()));
  return at->get<std::string>();
}

std::optional<int> number_of(const json& config, const char* name) {
  const auto at = config.find(name);
  if (at == config.end() || at->is_null()) return std::nullopt;
  if (!at->is_number_integer() || at->get<double>() < 1 || at->get<double>() > 1'000'000) {
    refuse(fmt::format("\"{}\" must be a whole number, 1 or more, not {}", name, at->dump()));
  }
  return at->get<int>();
}

bool flag_of(const json& config, const char* name) {
  const auto at = config.find(name);
  if (at == config.end() || at->is_null()) return false;
  if (!at->is_boolean()) refuse(fmt::format("\"{}\" must be true or false", name));
  return at->get<bool>();
}

void check_members(const json& config) {
  for (const auto& [name, value] : config.items()) {
    if (std::ranges::find(kMembers, name) != kMembers.end()) continue;
    const auto near = nearest(name, {kMembers.begin(), kMembers.end()});
    refuse(fmt::format("vLLM 0.32 knows no \"{}\"{}", name,
                       near ? fmt::format(": did you mean \"{}\"?", *near) : ""));
  }
  if (config.contains("tensor_parallel_size") && !config.at("tensor_parallel_size").is_null()) {
    refuse("\"tensor_parallel_size\" is not for drafts, say \"draft_tensor_parallel_size\"");
  }
}

// The method that vLLM takes where the user names none, or names one that the model's name
// overrules (SpeculativeConfig.__post_init__).
std::string method_of(std::string method, const std::string& model) {
  if (method.empty()) method = model == "ngram" || model == "[ngram]" ? "ngram" : "draft_model";
  if (method == "[ngram]") method = "ngram";
  if (method != "mtp" && method.ends_with("_mtp")) method = "mtp";  // the older, longer names
  if (std::ranges::find(kMethods, method) == kMethods.end()) {
    refuse(fmt::format("vLLM 0.32 knows no method \"{}\": it takes {}, and longer names of mtp",
                       method, fmt::join(kMethods, ", ")));
  }
  if (method != "draft_model" || model.empty()) return method;
  std::string lower = model;
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view name : {"eagle-", "eagle3", "dflash", "dspark"}) {
    if (lower.find(name) != std::string::npos)
      return name == "eagle-" ? "eagle" : std::string(name);
  }
  return method;
}

void check_tensor_parallel(const json& config, int tp) {
  const std::optional<int> size = number_of(config, "draft_tensor_parallel_size");
  if (!size || *size == tp) return;
  if (*size != 1) {
    refuse(
        fmt::format("\"draft_tensor_parallel_size\" {} is neither 1 nor the target's "
                    "--tensor-parallel-size {}, the only ones that vLLM takes",
                    *size, tp));
  }
  refuse(
      fmt::format("\"draft_tensor_parallel_size\" 1 is not served: vLLM 0.32 shares MTP and EAGLE "
                  "drafts between the target's {} ranks all the same; leave it out",
                  tp));
}

// What would change the layout of a draft's weights in a way that is not served.
void check_layout(const json& config) {
  if (const std::string method = text_of(config, "quantization"); !method.empty()) {
    refuse(
        fmt::format("\"quantization\" {} is not served: a draft's weights are held as its own "
                    "config.json says; leave it out",
                    method));
  }
  if (const std::string backend = text_of(config, "moe_backend");
      !backend.empty() && backend != "auto") {
    refuse(fmt::format("\"moe_backend\" {} of a draft is not served: leave it out", backend));
  }
  if (flag_of(config, "parallel_drafting")) {
    refuse("\"parallel_drafting\" is not served: its drafts hold tensors that others have not");
  }
}

// vLLM takes '-' for '_' in the members' names.
json with_underscores(const json& given) {
  json config = json::object();
  for (const auto& [name, value] : given.items()) {
    std::string spelled = name;
    std::ranges::replace(spelled, '-', '_');
    config[spelled] = value;
  }
  return config;
}

void check_model(const json& config, const SpeculativeConfig& out) {
  if (!out.model.empty()) return;
  if (text_of(config, "method").empty()) {
    refuse("neither \"method\" nor \"model\" says what drafts: vLLM needs one of them");
  }
  if (std::ranges::find(kNeedNoModel, out.method) == kNeedNoModel.end()) {
    refuse(fmt::format("method {} needs \"model\", the draft's directory or hub id", out.method));
  }
}

}  // namespace

SpeculativeConfig parse_speculative_config(std::string_view text, int tp) {
  const json given = json::parse(text, nullptr, false);
  if (!given.is_object()) {
    throw Error(Errc::kUsage, fmt::format("--speculative-config must be a JSON object: {}", text));
  }
  const json config = with_underscores(given);
  check_members(config);
  SpeculativeConfig out;
  out.model = text_of(config, "model");
  out.method = method_of(text_of(config, "method"), out.model);
  if (const std::string revision = text_of(config, "revision"); !revision.empty()) {
    out.revision = revision;
  }
  check_model(config, out);
  number_of(config, "num_speculative_tokens");
  out.draft = draft_method_from_name(out.method);
  if (!out.draft) return out;
  check_tensor_parallel(config, tp);
  check_layout(config);
  return out;
}

}  // namespace preload::cli
