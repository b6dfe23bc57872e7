// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/error.hpp"
#include "client/attachment.hpp"
#include "preload/client.h"

// What the functions of the C ABI share; the handle behind its opaque type.
struct preload_attachment {
  explicit preload_attachment(const preload::client::AttachOptions& options)
      : attachment(options) {}
  std::atomic<int> references{1};
  preload::client::Attachment attachment;
};

namespace preload::client {

inline void require(bool condition, const char* text) {
  if (!condition) throw Error(Errc::kUsage, text);
}

// A struct of the caller's: it may be shorter or longer than ours, its first member says.
template <class Struct>
Struct read_struct(const Struct* from) {
  require(from != nullptr && from->struct_size >= sizeof(std::size_t),
          "struct_size is not set: set it to sizeof the struct before the call");
  Struct copy{};
  std::memcpy(&copy, from, std::min(sizeof(Struct), from->struct_size));
  return copy;
}

template <class Struct>
void write_struct(void* to, std::size_t struct_size, Struct value) {
  value.struct_size = struct_size;
  std::memcpy(to, &value, std::min(sizeof(Struct), struct_size));
}

template <class Struct>
std::size_t struct_size_of(const Struct* out) {
  require(out != nullptr && out->struct_size >= sizeof(std::size_t),
          "struct_size is not set: set it to sizeof the struct before the call");
  return out->struct_size;
}

// What the caller of preload_attach and its kin asked for. Throws Error(kUsage).
AttachOptions attach_options(const preload_attach_options* given);

inline const Attachment& open(const preload_attachment* attachment) {
  require(attachment != nullptr, "the attachment is NULL");
  return attachment->attachment;
}

inline void check_index(std::uint64_t index, std::uint64_t count, const char* what) {
  if (index < count) return;
  throw Error(Errc::kUsage, fmt::format("{} {} of {}", what, index, count));
}

}  // namespace preload::client
