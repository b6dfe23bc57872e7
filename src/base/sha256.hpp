// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/unique.hpp"

namespace preload {

struct DigestTraits {
  using Handle = void*;  // EVP_MD_CTX
  static Handle null() noexcept { return nullptr; }
  static void close(Handle handle) noexcept;
};

// SHA-256 of what comes in pieces; sha256_hex (base/hash.hpp) is for what is at hand whole.
class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  std::string hex();  // 64 digits; once

 private:
  Unique<DigestTraits> context_;
};

}  // namespace preload
