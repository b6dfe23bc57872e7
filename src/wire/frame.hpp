// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "base/fd_passing.hpp"

namespace preload::wire {

// Frame: "PRLD", u16 version, u16 type, u32 length (little endian), then UTF-8 JSON. fds ride on
// the frame's first byte.
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 12;
inline constexpr std::uint32_t kMaxBodyBytes = 1 << 20;
inline constexpr std::size_t kMaxFds = kMaxPassedFds;

enum class Type : std::uint16_t {
  kHello = 1,
  kAttach = 2,
  kDescribe = 3,
  kStatus = 4,
  kRelease = 5,
  kGetArtifact = 6,
  kPutArtifact = 7,
  kDeposit = 8,
  kAdopt = 9,
  kHandover = 10,
  kStop = 11,
  kError = 12,
};

// Those that bring a whole residency along, with any number of descriptors over several frames.
constexpr bool carries_package(Type type) noexcept {
  return type == Type::kDeposit || type == Type::kAdopt || type == Type::kHandover;
}

struct Header {
  Type type = Type::kError;
  std::uint32_t length = 0;
};

// One message with what came along.
struct Frame {
  Type type = Type::kError;
  std::string body;
  std::vector<Fd> fds;
};

std::array<std::byte, kHeaderBytes> encode_header(Type type, std::size_t body_bytes);
// Throws Error(kProtocol) on a wrong magic, version, unknown type or a length past the limit:
// nothing is allocated from a length that was not checked.
Header decode_header(std::span<const std::byte, kHeaderBytes> bytes);

// Blocking client side, each call bounded by `timeout_ms`. Throw Error(kProtocol), or
// Error(kUnavailable) when the peer is gone or silent.
void send_frame(int socket, Type type, std::string_view body, const std::vector<int>& fds,
                int timeout_ms);
Frame receive_frame(int socket, int timeout_ms);

}  // namespace preload::wire
