// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/problems.hpp"

namespace preload {

// One safetensors file, its header read and checked.
struct WeightFile {
  SourceFile file;
  std::vector<SourceTensor> tensors;  // SourceTensor::file left 0
};

// Opens a regular file below `directory`, links followed. What is wrong becomes a problem.
Fd open_weight_file(int directory, const std::string& name, Problems& problems);

// The whole of a text file; nothing when it cannot be read, is larger than `limit_bytes` or is a
// git-lfs pointer.
std::optional<std::string> read_text_file(int directory, const std::string& name,
                                          std::size_t limit_bytes, Problems& problems);

// Reads and checks one file's header; nothing when the file has a problem. `problems` is of this
// file alone.
std::optional<WeightFile> read_weight_file(int directory, const std::string& name,
                                           Problems& problems);

// The same for several files at once, in the order given; latency of a network file system is paid
// a few times, not once per file.
std::vector<std::optional<WeightFile>> read_weight_files(int directory,
                                                         const std::vector<std::string>& names,
                                                         Problems& problems);

// True when `text` starts as a git-lfs pointer does.
bool is_lfs_pointer(std::string_view text) noexcept;
// What to say about one.
std::string lfs_problem();

}  // namespace preload
