// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace preload {

enum class FileSystemKind : std::uint8_t {
  kLocal,    // a disk of this machine
  kMemory,   // tmpfs and its kin: the page cache is the file
  kNetwork,  // NFS, Lustre, FUSE and the like: a mapping may hang or die with the server
};

// By the magic number that statfs gives for an open file; a file that cannot be asked is local.
FileSystemKind file_system_kind(int fd) noexcept;

// Whether the file's bytes are in the page cache, by sampled pages that are read only if that needs
// no wait (preadv2 with RWF_NOWAIT). A file system that cannot say so counts as cold.
bool is_in_page_cache(int fd, std::uint64_t bytes) noexcept;

}  // namespace preload
