// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "checkpoint/checkpoint.hpp"
#include "load/pieces.hpp"

namespace preload {

// The files that a load reads, opened once and checked against what their headers were read from.
// Thread-safe.
class SourceFiles {
 public:
  // Opens the files that `ops` name. Throws Error(kCheckpoint) when one is gone, short or changed.
  SourceFiles(const Checkpoint& checkpoint, const std::vector<CopyOp>& ops);

  // All of `out`, or Error(kCheckpoint) with file, offset and missing bytes.
  void read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out);
  // Throws Error(kCheckpoint) naming a file that changed since its headers were read.
  void check_unchanged() const;
  std::uint64_t bytes_read() const noexcept { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct Open {
    const SourceFile* file = nullptr;
    std::string shown;  // quoted path, for messages
    Fd fd;
  };
  std::vector<Open> files_;  // by the checkpoint's index; without fd when not needed
  std::atomic<std::uint64_t> bytes_read_{0};
};

// Reads a piece's rows into `out`, one after the other. Rows that lie close together are read with
// what is between them into `scratch` and gathered from there.
void read_rows(SourceFiles& files, const CopyOp& op, const Piece& piece, std::span<std::byte> out,
               std::span<std::byte> scratch);

}  // namespace preload
