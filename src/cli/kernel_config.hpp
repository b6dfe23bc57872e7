// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace preload::cli {

// The MoE backend that --kernel-config names, "auto" when it names none. Throws Error(kUsage)
// naming the member for what vLLM 0.32 would not take; members that change no layout are only
// checked for their names.
std::string moe_backend_of(std::string_view kernel_config);

}  // namespace preload::cli
