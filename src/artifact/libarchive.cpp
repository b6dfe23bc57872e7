// SPDX-License-Identifier: Apache-2.0
#include "artifact/libarchive.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "artifact/tree_bundle.hpp"
#include "base/error.hpp"

namespace preload::artifact {
namespace {

constexpr const char* kName = "libarchive.so.13";

// False when the library has no such function.
template <class Function>
bool resolve(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool resolve_all(void* from, LibArchive& to) noexcept {
  return resolve(from, "archive_error_string", to.error_string) &&
         resolve(from, "archive_read_new", to.read_new) &&
         resolve(from, "archive_read_support_format_tar", to.read_support_format_tar) &&
         resolve(from, "archive_read_open_fd", to.read_open_fd) &&
         resolve(from, "archive_read_next_header", to.read_next_header) &&
         resolve(from, "archive_read_data", to.read_data) &&
         resolve(from, "archive_read_free", to.read_free) &&
         resolve(from, "archive_write_new", to.write_new) &&
         resolve(from, "archive_write_set_format_gnutar", to.write_set_format_gnutar) &&
         resolve(from, "archive_write_set_bytes_in_last_block", to.write_set_bytes_in_last_block) &&
         resolve(from, "archive_write_open_fd", to.write_open_fd) &&
         resolve(from, "archive_write_header", to.write_header) &&
         resolve(from, "archive_write_data", to.write_data) &&
         resolve(from, "archive_write_close", to.write_close) &&
         resolve(from, "archive_write_free", to.write_free) &&
         resolve(from, "archive_entry_new", to.entry_new) &&
         resolve(from, "archive_entry_free", to.entry_free) &&
         resolve(from, "archive_entry_set_pathname", to.entry_set_pathname) &&
         resolve(from, "archive_entry_set_size", to.entry_set_size) &&
         resolve(from, "archive_entry_set_filetype", to.entry_set_filetype) &&
         resolve(from, "archive_entry_set_perm", to.entry_set_perm) &&
         resolve(from, "archive_entry_set_mtime", to.entry_set_mtime) &&
         resolve(from, "archive_entry_set_symlink", to.entry_set_symlink) &&
         resolve(from, "archive_entry_pathname", to.entry_pathname) &&
         resolve(from, "archive_entry_size", to.entry_size) &&
         resolve(from, "archive_entry_filetype", to.entry_filetype) &&
         resolve(from, "archive_entry_perm", to.entry_perm) &&
         resolve(from, "archive_entry_hardlink", to.entry_hardlink) &&
         resolve(from, "archive_entry_symlink", to.entry_symlink);
}

// Once for the process; the library stays.
const LibArchive::Opened& opened() {
  static const LibArchive::Opened instance = LibArchive::open(kName, PRELOAD_LIBARCHIVE_PATH);
  return instance;
}

}  // namespace

LibArchive::Opened LibArchive::open(const char* name, const char* path) {
  Opened opened;
  // The linker's own search first; where the library was built against last (Spack's prefixes).
  void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  const char* const why = handle == nullptr ? dlerror() : nullptr;
  const std::string problem = why == nullptr ? "" : why;
  if (handle == nullptr) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    opened.problem = fmt::format("libarchive cannot be opened ({}): install libarchive13", problem);
  } else if (!resolve_all(handle, opened.library)) {
    opened.problem = fmt::format("{} is no libarchive of version 3: install libarchive13", name);
  }
  return opened;
}

const LibArchive& LibArchive::get() {
  if (!opened().problem.empty()) throw Error(Errc::kUsage, opened().problem);
  return opened().library;
}

std::string LibArchive::error_of(archive* handle) const {
  const char* const text = error_string(handle);
  return text == nullptr ? "libarchive gives no reason" : text;
}

std::string bundles_problem() { return opened().problem; }

}  // namespace preload::artifact
