// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "model/copy_program.hpp"
#include "model/model_spec.hpp"
#include "plan/shards.hpp"

namespace preload {

// What of its ends a draft has of its own. What it lacks the engine takes from the target.
struct DraftOwns {
  bool embed_tokens = false;
  bool lm_head = false;
};

// CopyProgram::attributes_json: what a client may want to know of the model beside its tensors.
// `dtype` is the one type of the floats, unset when they are as stored; `others` begin the stored
// names of what is served whole beside the language model, in no engine's layout.
std::string attributes_json(const ModelSpec& spec, const std::optional<DType>& dtype,
                            const Interval& layers, const CopyProgram& program,
                            std::span<const std::string_view> others,
                            const std::optional<DraftOwns>& draft = {});

}  // namespace preload
