// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace preload::cli {

// Throws Error(kUsage) when `name` is a flag that MPI replaces, with the srun and mpirun commands
// to use instead of `arguments`; returns otherwise.
void refuse_replaced_flag(std::string_view command, std::string_view name,
                          const std::vector<std::string>& arguments);

}  // namespace preload::cli
