// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/draft.hpp"

namespace preload::cli {

// --speculative-config, as far as it selects weights.
struct SpeculativeConfig {
  std::string method;  // vLLM's name, deduced as vLLM does where it is not given
  std::string model;   // directory or hub id of the draft; empty: in the target's checkpoint
  std::string revision = "main";
  std::optional<DraftMethod> draft;  // unset: the method has no weights that are served
};

// Throws Error(kUsage) naming the member for what vLLM 0.32 would not take, and for a draft that is
// shared by another number of ranks than its target (`tp`).
SpeculativeConfig parse_speculative_config(std::string_view text, int tp);

}  // namespace preload::cli
