// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/unique.hpp"

namespace preload {

struct FdTraits {
  using Handle = int;
  static int null() noexcept { return -1; }
  static void close(int fd) noexcept;
};
using Fd = Unique<FdTraits>;

// An anonymous or file mapping, unmapped on destruction.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, std::size_t bytes) noexcept : address_(address), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const noexcept { return static_cast<std::byte*>(address_); }
  std::size_t size() const noexcept { return bytes_; }
  std::span<const std::byte> bytes() const noexcept { return {data(), bytes_}; }
  explicit operator bool() const noexcept { return address_ != nullptr; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

// Returns `result`, or throws Error(code) with `what` and errno's text when it is negative.
long check_sys(long result, std::string_view what, Errc code = Errc::kInternal,
               std::source_location where = std::source_location::current());
std::string errno_text(int error);  // "No space left on device (ENOSPC)"

Fd open_fd(int directory, const std::string& path, int flags, unsigned mode, Errc code);
// Maps [0, bytes) of fd; protection is PROT_READ or PROT_READ|PROT_WRITE, always MAP_SHARED.
Mapping map_fd(int fd, std::size_t bytes, bool writable, std::string_view what);
Fd duplicate(int fd);  // CLOEXEC

// Reads until `out` is full; returns fewer bytes only at end of file.
std::size_t pread_full(int fd, std::span<std::byte> out, std::uint64_t offset,
                       std::string_view what);
void write_full(int fd, std::span<const std::byte> bytes, std::string_view what);
std::string read_all(int fd, std::string_view what, std::size_t limit_bytes);
// The text of a small file, or nothing when it is not there.
std::optional<std::string> read_file_at(int directory, const std::string& name,
                                        std::size_t limit_bytes = 1 << 20);
// Temp file + fsync + rename inside `directory`; mode 0600.
void write_file_at(int directory, const std::string& name, std::string_view text);

// A memfd of `bytes`, sealable, CLOEXEC.
Fd make_memfd(const std::string& name, std::uint64_t bytes);
// SHRINK, GROW, FUTURE_WRITE and SEAL: existing writable mappings stay, nothing else can change it.
void seal_memfd(int fd);
bool is_sealed(int fd) noexcept;  // carries all four seals

}  // namespace preload
