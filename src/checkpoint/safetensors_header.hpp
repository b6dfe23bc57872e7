// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/problems.hpp"

namespace preload {

// The format: u64 header length (little endian), JSON header, data. No header may be longer.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The tensors that a header describes, in order of their bytes; `file` is left 0. Every tensor is
// checked against its dtype and shape, all of them against each other and the file: the data must
// be tiled exactly, with nothing missing, overlapping or left over. `problems` is of this file
// alone.
std::vector<SourceTensor> read_safetensors_header(std::string_view file, std::string_view json,
                                                  std::uint64_t file_bytes, Problems& problems);

}  // namespace preload
