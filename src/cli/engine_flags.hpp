// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace preload::cli {

// A flag of the engine that could change what its ranks hold in ways that are not served.
struct EngineFlag {
  std::string_view name;
  std::string_view abbreviation;
  bool is_switch = false;
  std::string_view because;  // why it is refused
};

const EngineFlag* find_engine_flag(std::string_view name, bool is_long) noexcept;

// Whether the flag, given with this value (none: a bare switch), says no more than what holds
// without it. `path` is what stands behind a dot in the flag's name.
bool is_neutral(const EngineFlag& flag, const std::optional<std::string>& path,
                const std::optional<std::string>& value);

// How the positions of a switch are written.
bool is_on(std::string_view value) noexcept;
bool is_off(std::string_view value) noexcept;

}  // namespace preload::cli
