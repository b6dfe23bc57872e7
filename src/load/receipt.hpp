// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace preload {

// By what a weight file is known again without reading it whole. Names never count: that of a hub
// cache's blob says what was downloaded, not what the file holds now.
struct FileReceipt {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  // Unset where the file was so young that a later write may have left its times as they are, or
  // had changed since its header was read: then the four above prove nothing.
  bool settled = true;
  std::string tensors;  // 32 hex digits over names, dtypes and shapes of what was sampled
  std::string sample;   // 32 hex digits; empty: not taken
  friend bool operator==(const FileReceipt&, const FileReceipt&) = default;
};
using Receipt = std::vector<FileReceipt>;  // by name

// From the file system's word alone; no file is read.
Receipt take_receipt(const Checkpoint& checkpoint);

// Adds a digest of a few KiB of each file: 16 blocks of 4 KiB, spread over its tensors in the order
// of their names, each hashed at its place in its tensor. So the digest does not depend on how the
// file orders its tensors; where two that hold the same `tensors` differ, so do the tensors. Only
// tensors that are `wanted` count (one entry per tensor; empty: all). Throws Error(kCheckpoint)
// naming a file that cannot be read.
void add_samples(Receipt& receipt, const Checkpoint& checkpoint,
                 const std::vector<bool>& wanted = {});

std::string to_json(const Receipt& receipt);
Receipt receipt_from_json(std::string_view text);  // throws Error(kProtocol)

}  // namespace preload
