// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace preload {

// Texts that processes pass each other as memfds that nobody can change any more.
Fd seal_text(const std::string& name, std::string_view text);

// The size of a sealed memfd. Throws Error(kProtocol) when it is none, empty or larger than `most`.
std::uint64_t sealed_size(int fd, std::string_view what, std::uint64_t most);
Mapping map_sealed_text(int fd, std::string_view what, std::uint64_t most);
std::string_view text_of(const Mapping& mapping) noexcept;

// Throws Error(kProtocol).
[[noreturn]] void reject_package(const std::string& text);

}  // namespace preload
