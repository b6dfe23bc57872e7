// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace preload {

// What came of a read past the page cache.
struct DirectRead {
  std::size_t bytes = 0;     // fewer than asked for without an error: the file ends there
  int error = 0;             // errno of a read that was refused or failed
  std::uint64_t offset = 0;  // in the file, where the error was
};

// Part of an open file to read past the page cache. Offset, memory and bytes are multiples of
// `alignment`.
struct DirectRange {
  int fd = -1;  // opened with O_DIRECT
  std::uint64_t offset = 0;
  std::span<std::byte> out;
  std::uint64_t alignment = 0;  // in bytes
};

// One request after the other, by pread.
DirectRead read_direct(const DirectRange& range) noexcept;

}  // namespace preload
