// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/fd.hpp"

namespace preload {

// A read-only mapping of a whole file, for bytes that are in the page cache.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error(kMemory) when the address space cannot hold it.
  MappedFile(int fd, std::uint64_t bytes);

  // Copies [offset, offset + out.size()), which lies within the mapping. False when the bytes could
  // not be had: the file was cut short, or its disk failed (SIGBUS, caught here for this thread).
  bool copy(std::uint64_t offset, std::span<std::byte> out) const noexcept;
  explicit operator bool() const noexcept { return static_cast<bool>(mapping_); }

 private:
  int fd_ = -1;  // the caller's, which outlives this
  Mapping mapping_;
};

}  // namespace preload
