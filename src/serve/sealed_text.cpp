// SPDX-License-Identifier: Apache-2.0
#include "serve/sealed_text.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <span>

#include "base/error.hpp"

namespace preload {

Fd seal_text(const std::string& name, std::string_view text) {
  Fd fd = make_memfd(name, text.size());
  write_full(fd.get(), std::as_bytes(std::span(text)), name);
  seal_memfd(fd.get());
  return fd;
}

std::uint64_t sealed_size(int fd, std::string_view what, std::uint64_t most) {
  if (!is_sealed(fd)) reject_package(fmt::format("{} is not a sealed memfd", what));
  struct stat info {};
  check_sys(::fstat(fd, &info), "looking at a memfd", Errc::kProtocol);
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes == 0 || bytes > most) reject_package(fmt::format("{} has {} bytes", what, bytes));
  return bytes;
}

Mapping map_sealed_text(int fd, std::string_view what, std::uint64_t most) {
  return map_fd(fd, static_cast<std::size_t>(sealed_size(fd, what, most)), false, what);
}

std::string_view text_of(const Mapping& mapping) noexcept {
  return {reinterpret_cast<const char*>(mapping.data()), mapping.size()};
}

void reject_package(const std::string& text) {
  throw Error(Errc::kProtocol, "what was deposited or handed over is not complete: " + text);
}

}  // namespace preload
