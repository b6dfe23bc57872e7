// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace preload {

struct Checkpoint;
struct LayoutRequest;
struct ModelSpec;

// The speculative methods of vLLM whose draft models are served: layers behind the target's last
// one in its own checkpoint, or a model of one or a few layers in a checkpoint of its own.
enum class DraftMethod : std::uint8_t { kMtp, kEagle, kEagle3 };
std::string_view draft_method_name(DraftMethod method) noexcept;  // "mtp", "eagle", "eagle3"
std::optional<DraftMethod> draft_method_from_name(std::string_view name) noexcept;

// Which draft is wanted of a checkpoint, and what its layout takes over from its target.
struct DraftRequest {
  DraftMethod method = DraftMethod::kMtp;
  std::int64_t target_vocab_size = 0;
  friend bool operator==(const DraftRequest&, const DraftRequest&) = default;
};

// What vLLM calls the draft of a model: "EagleLlamaForCausalLM" (vllm/transformers_utils/configs/
// eagle.py), "DeepSeekMTPModel" (vllm/config/speculative.py, hf_config_override). Empty when it has
// none.
std::string draft_architecture(DraftMethod method, const ModelSpec& spec);

// What is laid over a draft's config: its architecture, and what EAGLE3 keeps one level down. (A
// user's overrides are for the target alone, as in vLLM.)
std::string draft_overrides(const std::string& config_json, const std::string& architecture);

// Completes the request for a draft by what it takes over from its target: the engine holds it in
// the target's type.
void follow_target(LayoutRequest& draft, const Checkpoint& target, const ModelSpec& target_spec,
                   const LayoutRequest& target_request);

// Throws Error(kModel) naming both values when the draft cannot work on the target's activations.
void check_draft(DraftMethod method, const ModelSpec& draft, const ModelSpec& target,
                 const std::string& draft_name);

}  // namespace preload
