// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "artifact/disk_record.hpp"
#include "base/cancel.hpp"
#include "base/fd.hpp"

namespace preload::artifact {

// One entry of a folder, read and compared with its record.
struct DiskEntry {
  enum class State { kAbsent, kGood, kDamaged };
  State state = State::kAbsent;
  std::string problem;  // of a damaged one
  DiskRecord record;    // of a good one
  Fd content;           // at its start
};
// Throws Cancelled.
DiskEntry read_entry(int folder, const std::string& filename, const Cancel* cancel = nullptr);
// The same, read again only where the file is not the one that `known` was read from.
DiskEntry renew_entry(int folder, const std::string& filename, DiskEntry known,
                      const Cancel* cancel = nullptr);

// The other entry of the same rank that was used last, where one was made under another
// environment.
std::optional<DiskRecord> other_environment(int folder, const std::string& filename);

void mark_entry_used(int folder, const std::string& filename, const std::string& sha256) noexcept;
// The content first: what a crash leaves is a record, which is no entry.
void remove_entry(int folder, const std::string& filename) noexcept;
// Records of `filename` but that of `sha256`.
void remove_other_records(int folder, const std::string& filename,
                          const std::string& sha256) noexcept;

}  // namespace preload::artifact
