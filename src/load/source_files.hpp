// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "checkpoint/checkpoint.hpp"
#include "load/mapped_file.hpp"
#include "load/pieces.hpp"
#include "load/read_method.hpp"

namespace preload {

// The files that a load reads, opened once and checked against what their headers were read from.
// Thread-safe.
class SourceFiles {
 public:
  // Opens the files that `ops` name and settles how each is read: as `method` says, else by pread
  // where the file is in the page cache or on a network file system, else past the page cache.
  // Throws Error(kCheckpoint) when one is gone, short or changed, Error(kUsage) when this build
  // lacks `method`.
  SourceFiles(const Checkpoint& checkpoint, const std::vector<CopyOp>& ops,
              std::optional<ReadMethod> method = std::nullopt);

  // All of `out`, or Error(kCheckpoint) with file, offset and missing bytes.
  void read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out);
  // Throws Error(kCheckpoint) naming a file that changed since its headers were read.
  void check_unchanged() const;
  std::uint64_t bytes_read() const noexcept;
  ReadMethod main_method() const noexcept;  // how most bytes were read

 private:
  struct Open {
    const SourceFile* file = nullptr;
    std::string shown;  // quoted path, for messages
    Fd fd;
    ReadMethod method = ReadMethod::kPread;
    MappedFile mapping;           // for kMmap
    Fd direct;                    // for kDirect and kUring: opened with O_DIRECT
    std::uint64_t alignment = 0;  // of direct reads, in bytes
  };
  void settle_method(Open& open, std::optional<ReadMethod> wanted);
  void open_direct(Open& open, const std::string& path);
  std::size_t read_by(ReadMethod method, const Open& open, std::uint64_t offset,
                      std::span<std::byte> out);
  std::size_t read_past_cache(ReadMethod method, const Open& open, std::uint64_t offset,
                              std::span<std::byte> out);

  std::vector<Open> files_;  // by the checkpoint's index; without fd when not needed
  std::atomic<bool> direct_refused_{false};
  std::array<std::atomic<std::uint64_t>, 4> bytes_by_{};  // by ReadMethod
};

// Reads a piece's rows into `out`, one after the other. Rows that lie close together are read with
// what is between them into `scratch` and gathered from there.
void read_rows(SourceFiles& files, const CopyOp& op, const Piece& piece, std::span<std::byte> out,
               std::span<std::byte> scratch);

}  // namespace preload
