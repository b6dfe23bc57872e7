// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.hpp"
#include "wire/frame_reader.hpp"
#include "wire/frame_writer.hpp"

namespace preload::wire {
namespace {

constexpr std::array<char, 4> kMagic{'P', 'R', 'L', 'D'};

using Clock = std::chrono::steady_clock;

// Waits until the socket is ready for `events`; throws when the deadline passes first.
void wait_ready(int socket, short events, Clock::time_point deadline, std::string_view what) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{socket, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<long long>(left, 0)));
    if (ready > 0) return;
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) check_sys(-1, "poll", Errc::kInternal);
    throw Error(Errc::kUnavailable, fmt::format("the peer did not {} in time", what));
  }
}

std::uint32_t load(std::span<const std::byte> bytes) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = (value << 8) | std::to_integer<std::uint32_t>(bytes[i]);
  return value;
}

void store(std::byte* at, std::uint32_t value, int bytes) noexcept {
  for (int i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>((value >> (8 * i)) & 0xFFU);
}

}  // namespace

std::array<std::byte, kHeaderBytes> encode_header(Type type, std::size_t body_bytes) {
  if (body_bytes > kMaxBodyBytes)
    throw Error(Errc::kInternal, fmt::format("a message of {} bytes is over the limit of {}",
                                             body_bytes, kMaxBodyBytes));
  std::array<std::byte, kHeaderBytes> out{};
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  store(out.data() + 4, kVersion, 2);
  store(out.data() + 6, static_cast<std::uint16_t>(type), 2);
  store(out.data() + 8, static_cast<std::uint32_t>(body_bytes), 4);
  return out;
}

Header decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw Error(Errc::kProtocol, "the peer does not speak preload's protocol");
  const std::uint32_t version = load(bytes.subspan(4, 2));
  if (version != kVersion)
    throw Error(Errc::kProtocol,
                fmt::format("the peer speaks protocol version {}, this side version {}: use the "
                            "same preload release on both sides",
                            version, kVersion));
  const std::uint32_t type = load(bytes.subspan(6, 2));
  if (type < static_cast<std::uint32_t>(Type::kHello) ||
      type > static_cast<std::uint32_t>(Type::kError))
    throw Error(Errc::kProtocol, fmt::format("unknown message type {}", type));
  const std::uint32_t length = load(bytes.subspan(8, 4));
  if (length > kMaxBodyBytes)
    throw Error(Errc::kProtocol, fmt::format("a message announces {} bytes; the limit is {}",
                                             length, kMaxBodyBytes));
  return Header{static_cast<Type>(type), length};
}

void send_frame(int socket, Type type, std::string_view body, const std::vector<int>& fds,
                int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  FrameWriter writer;
  writer.push(type, body, fds);
  while (!writer.write(socket)) wait_ready(socket, POLLOUT, deadline, "take the request");
}

Frame receive_frame(int socket, int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  FrameReader reader;
  while (true) {
    switch (reader.read(socket)) {
      case FrameReader::Result::kFrame:
        return reader.take();
      case FrameReader::Result::kClosed:
        throw Error(Errc::kUnavailable, "the peer closed the connection without an answer");
      case FrameReader::Result::kNeedMore:
        wait_ready(socket, POLLIN, deadline, "answer");
    }
  }
}

}  // namespace preload::wire
