// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <string>

namespace preload::artifact {

// libarchive, opened late: a binary runs on machines without it. Format tar, no compression.
struct LibArchive {
  // Throws Error(kUsage) with bundles_problem().
  static const LibArchive& get();

  decltype(&::archive_error_string) error_string = nullptr;
  decltype(&::archive_read_new) read_new = nullptr;
  decltype(&::archive_read_support_format_tar) read_support_format_tar = nullptr;
  decltype(&::archive_read_open_fd) read_open_fd = nullptr;
  decltype(&::archive_read_next_header) read_next_header = nullptr;
  decltype(&::archive_read_data) read_data = nullptr;
  decltype(&::archive_read_free) read_free = nullptr;
  decltype(&::archive_write_new) write_new = nullptr;
  decltype(&::archive_write_set_format_gnutar) write_set_format_gnutar = nullptr;
  decltype(&::archive_write_set_bytes_in_last_block) write_set_bytes_in_last_block = nullptr;
  decltype(&::archive_write_open_fd) write_open_fd = nullptr;
  decltype(&::archive_write_header) write_header = nullptr;
  decltype(&::archive_write_data) write_data = nullptr;
  decltype(&::archive_write_close) write_close = nullptr;
  decltype(&::archive_write_free) write_free = nullptr;
  decltype(&::archive_entry_new) entry_new = nullptr;
  decltype(&::archive_entry_free) entry_free = nullptr;
  decltype(&::archive_entry_set_pathname) entry_set_pathname = nullptr;
  decltype(&::archive_entry_set_size) entry_set_size = nullptr;
  decltype(&::archive_entry_set_filetype) entry_set_filetype = nullptr;
  decltype(&::archive_entry_set_perm) entry_set_perm = nullptr;
  decltype(&::archive_entry_set_mtime) entry_set_mtime = nullptr;
  decltype(&::archive_entry_set_symlink) entry_set_symlink = nullptr;
  decltype(&::archive_entry_pathname) entry_pathname = nullptr;
  decltype(&::archive_entry_size) entry_size = nullptr;
  decltype(&::archive_entry_filetype) entry_filetype = nullptr;
  decltype(&::archive_entry_perm) entry_perm = nullptr;
  decltype(&::archive_entry_hardlink) entry_hardlink = nullptr;
  decltype(&::archive_entry_symlink) entry_symlink = nullptr;

  // What the library says of the last call's failure.
  std::string error_of(archive* handle) const;

  // How it is opened, apart so that a machine without it can be tried: the library and, where there
  // is none, why not.
  struct Opened;
  static Opened open(const char* name, const char* path);
};

struct LibArchive::Opened {
  LibArchive library;
  std::string problem;
};

}  // namespace preload::artifact
