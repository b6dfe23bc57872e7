// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace preload {

// How bytes come from a file into a buffer.
enum class ReadMethod : std::uint8_t {
  kPread,   // through the page cache by a system call
  kMmap,    // copied out of a mapping of the page cache; never on network file systems
  kDirect,  // O_DIRECT past the page cache; where the file system refuses, buffered
  kUring,   // the same with several requests in flight a thread; where refused, kDirect
};

// "pread", "mmap", "direct", "uring"
std::string_view read_method_name(ReadMethod method) noexcept;
std::optional<ReadMethod> read_method_from_name(std::string_view name) noexcept;

// Throws Error(kUsage) with the remedy when this build lacks what `method` needs.
void require_built(ReadMethod method);

}  // namespace preload
