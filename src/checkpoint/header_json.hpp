// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dims.hpp"
#include "checkpoint/problems.hpp"

namespace preload {

// One entry of a safetensors header as it is written there: nothing about it is checked yet but
// that the fields have the right JSON types.
struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::array<std::uint64_t, Dims::kMax> shape{};
  std::size_t dimensions = 0;
  std::array<std::uint64_t, 2> data_offsets{};
};

// Reads the JSON of a header. Syntax errors (with their position), duplicate names and fields of
// the wrong type become problems; such entries are left out.
std::vector<HeaderEntry> parse_header_json(std::string_view file, std::string_view json,
                                           Problems& problems);

}  // namespace preload
