// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>

#include "base/hash.hpp"

namespace preload {
namespace {

std::string hash(const std::string& text, std::size_t piece) {
  Sha256 hash;
  const auto bytes = std::as_bytes(std::span(text));
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    hash.add(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  return hash.hex();
}

// FIPS 180-2, appendix B.
TEST(Sha256Pieces, GiveThePublishedDigests) {
  EXPECT_EQ(hash("abc", 2), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 5),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a'), 4096),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Pieces, AreTheSameAsTheWhole) {
  EXPECT_EQ(Sha256().hex(), sha256_hex(""));
  EXPECT_EQ(hash("some text", 1), sha256_hex("some text"));
}

}  // namespace
}  // namespace preload
