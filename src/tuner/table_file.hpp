// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tuner/tuning_table.hpp"

namespace preload::tuner {

// Who asks for a table: one communicator of the NCCL in this process.
struct TableUser {
  Shape shape;
  std::optional<int> nccl_version;  // nothing: NCCL did not tell
  std::optional<std::string> gpu;   // nothing: there is no driver to ask
};

// Reads a table's file. Throws Error(kUsage) that names it and the remedy.
TuningTable read_table_file(const std::string& path);

// The entries of `table` for `user`, in order. Throws Error(kUsage) with the remedy when it was
// measured with another NCCL or on another topology. `path` names the table in errors.
std::vector<Entry> entries_for(const TuningTable& table, const TableUser& user,
                               const std::string& path);

}  // namespace preload::tuner
