// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "load/receipt.hpp"

namespace preload {

// What a claim that two checkpoints are the same rests on, cheapest first. All but kSample are full
// evidence.
enum class Evidence : std::uint8_t {
  kNone,     // no claim
  kReceipt,  // the same files, unchanged: name, inode, size and times
  kHash,     // every byte that is used was hashed, now or earlier
  kSample,   // a few KiB of each file; only where the user trusts that
  kKey,      // the client itself named the key, or fields of it
};
std::string_view evidence_name(Evidence evidence) noexcept;  // "receipt", "hash", …, "none"

// Whether the receipts show that the files are the same; if not, that does not say that they
// differ.
bool same_files(const Receipt& one, const Receipt& other);

// Files of one name that hold the same tensors in both, with other bytes: these differ for sure.
// Files that were cut differently say nothing.
std::vector<std::string> differing_files(const Receipt& one, const Receipt& other);
// The same files by name, with the same tensors and samples.
bool same_samples(const Receipt& one, const Receipt& other);

}  // namespace preload
