// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "comm/job_message.hpp"

namespace preload {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kMaxUnsentBytes = 1 << 20;

std::size_t frame_length(const std::string& bytes, std::size_t at) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return length;
}

// Takes the whole messages off the front of `in`.
bool take_messages(std::string& in, std::vector<JobMessage>& messages, std::size_t limit) {
  std::size_t at = 0;
  bool sound = true;
  while (in.size() - at >= kLengthBytes) {
    const std::size_t length = frame_length(in, at);
    sound = length <= limit;
    if (!sound || in.size() - at - kLengthBytes < length) break;
    auto message = decode_body(std::string_view(in).substr(at + kLengthBytes, length));
    sound = message.has_value();
    if (!sound) break;
    messages.push_back(std::move(*message));
    at += kLengthBytes + length;
  }
  in.erase(0, at);
  return sound;
}

}  // namespace

JobConnection::JobConnection(Fd socket) : socket_(std::move(socket)) {}

bool JobConnection::flush() {
  while (!out_.empty()) {
    const ssize_t sent =
        ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return out_.size() <= kMaxUnsentBytes;
    }
    if (sent <= 0) return false;
    out_.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

bool JobConnection::read(std::vector<JobMessage>& messages, std::size_t limit) {
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    in_.append(chunk.data(), static_cast<std::size_t>(got));
    if (!take_messages(in_, messages, limit)) return false;
    // One talkative peer must not keep the loop from the others: the rest is for the next turn.
    if (static_cast<std::size_t>(got) < chunk.size() || messages.size() >= 64) return true;
  }
}

}  // namespace preload
