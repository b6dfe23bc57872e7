// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "checkpoint/checkpoint.hpp"
#include "load/file_system.hpp"
#include "load/mapped_file.hpp"
#include "load/pieces.hpp"
#include "load/read_gate.hpp"
#include "load/read_method.hpp"
#include "load/read_watch.hpp"

namespace preload {

struct ReadOptions {
  std::optional<ReadMethod> method = std::nullopt;  // unset: by what is in the page cache
  ReadsInFlight in_flight = {};                     // of this process, per file system
  ReadWatch* watch = nullptr;                       // shows the reads; outlives their files
};

// The files that a load reads, opened once and checked against what their headers were read from.
// Thread-safe.
class SourceFiles {
 public:
  // Opens the files with these numbers and settles how each is read: as the options say, else by
  // pread where the file is in the page cache or on a network file system, else past the page
  // cache. Throws Error(kCheckpoint) when one is gone, short or changed, Error(kUsage) when this
  // build lacks the method.
  SourceFiles(const Checkpoint& checkpoint, const std::vector<std::uint32_t>& files,
              const ReadOptions& options = {});

  // From now on by `method`, as far as that goes with how the files are read: through the page
  // cache, or past it. Not while another thread reads.
  void use(ReadMethod method);
  bool may_map() const noexcept;               // none lies on a network file system
  std::uint64_t file_system() const noexcept;  // st_dev of the first file

  // All of `out`, or Error(kCheckpoint) with file, offset and missing bytes.
  void read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out);
  // Throws Error(kCheckpoint) naming a file that changed since its headers were read.
  void check_unchanged() const;
  std::uint64_t bytes_read() const noexcept;
  ReadMethod main_method() const noexcept;     // how most bytes were read
  bool reads_past_the_cache() const noexcept;  // any of the files
  int most_in_flight() const;  // reads at once on one file system that has a limit, so far

 private:
  struct Open {
    const SourceFile* file = nullptr;
    std::string shown;  // quoted path, for messages
    FileSystemKind kind = FileSystemKind::kLocal;
    Fd fd;
    ReadMethod method = ReadMethod::kPread;
    MappedFile mapping;           // for kMmap
    Fd direct;                    // for kDirect and kUring: opened with O_DIRECT
    std::uint64_t alignment = 0;  // of direct reads, in bytes
    ReadGate* gate = nullptr;     // of its file system, where that has a limit
  };
  void settle_method(Open& open, std::optional<ReadMethod> wanted);
  ReadGate* gate_of(int fd, int limit);
  void open_direct(Open& open, const std::string& path);
  std::size_t read_by(ReadMethod method, const Open& open, std::uint64_t offset,
                      std::span<std::byte> out, int in_flight);
  std::size_t read_past_cache(ReadMethod method, const Open& open, std::uint64_t offset,
                              std::span<std::byte> out, int in_flight);

  ReadWatch* const watch_;
  std::vector<Open> files_;  // by the checkpoint's index; without fd when not needed
  std::map<std::uint64_t, ReadGate> gates_;  // by st_dev
  std::atomic<bool> direct_refused_{false};
  std::array<std::atomic<std::uint64_t>, 4> bytes_by_{};  // by ReadMethod
};

// Reads a piece's rows into `out`, one after the other. Rows that lie close together are read with
// what is between them into `scratch` and gathered from there.
void read_rows(SourceFiles& files, const FileRows& rows, const Piece& piece,
               std::span<std::byte> out, std::span<std::byte> scratch);

}  // namespace preload
