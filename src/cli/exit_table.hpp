// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace preload::cli {

// One row of what the exit statuses of all commands mean.
struct ExitStatus {
  std::string_view status;
  std::string_view text;
};

std::span<const ExitStatus> exit_table() noexcept;

}  // namespace preload::cli
