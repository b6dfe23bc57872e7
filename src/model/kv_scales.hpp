// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace preload {

// The names within a layer under which a checkpoint may have what the engine's `attention` module
// calls `parameter` (k_scale, v_scale, q_scale, or zero points), the first that is stored counts:
// vLLM 0.32 model_loader/weight_utils.py, maybe_remap_kv_scale_name.
std::vector<std::string> stored_kv_names(std::string_view attention, std::string_view parameter);

// All of the names above.
std::vector<std::string> stored_kv_names(std::string_view attention);

}  // namespace preload
