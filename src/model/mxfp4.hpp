// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/kernel_backend.hpp"
#include "model/layout_rules.hpp"
#include "model/model_spec.hpp"

// Experts of 4-bit floats, two a byte, of which 32 in a row share a scale of 8 bits: GPT-OSS as it
// is stored.
namespace preload {

// `rules` with their experts read as MXFP4. `sizes` is what the engine's kernels want.
std::vector<LayoutRule> with_mxfp4_experts(const std::vector<LayoutRule>& rules,
                                           const ExpertSizes& sizes, RuleStyle style);

// Why experts of this size cannot be cut for `ranks`, one line a reason.
std::vector<std::string> mxfp4_refusals(const ModelSpec& spec, std::string_view backend,
                                        const ExpertSizes& sizes, int ranks, RuleStyle style);

}  // namespace preload
