// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/option_table.hpp"

namespace preload::cli {

// The flag of this name that MPI replaces; nullptr when there is none.
const ReplacedFlag* find_replaced_flag(std::string_view name) noexcept;

// Throws Error(kUsage) with the srun and mpirun commands to use instead of `arguments`.
[[noreturn]] void refuse_replaced_flag(std::string_view command, const ReplacedFlag& flag,
                                       const std::vector<std::string>& arguments);

}  // namespace preload::cli
