// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <iterator>

#include "base/error.hpp"

namespace preload {

namespace {

EVP_MD_CTX* context_of(const Unique<DigestTraits>& handle) noexcept {
  return static_cast<EVP_MD_CTX*>(handle.get());
}

void check(int result) {
  if (result != 1) throw Error(Errc::kInternal, "OpenSSL cannot compute SHA-256");
}

}  // namespace

void DigestTraits::close(Handle handle) noexcept {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(handle));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ ? EVP_DigestInit_ex(context_of(context_), EVP_sha256(), nullptr) : 0);
}

void Sha256::add(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(context_of(context_), bytes.data(), bytes.size()));
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(context_of(context_), digest.data(), nullptr));
  std::string hex;
  for (const unsigned char byte : digest) fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
  return hex;
}

}  // namespace preload
