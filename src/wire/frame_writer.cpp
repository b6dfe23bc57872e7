// SPDX-License-Identifier: Apache-2.0
#include "wire/frame_writer.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace preload::wire {

void FrameWriter::push(Type type, std::string_view body, std::vector<int> fds) {
  if (fds.size() > kMaxFds)
    throw Error(Errc::kInternal, fmt::format("{} descriptors do not fit into one message of {}",
                                             fds.size(), kMaxFds));
  Outgoing out;
  const auto header = encode_header(type, body.size());
  out.bytes.reserve(header.size() + body.size());
  out.bytes.append(reinterpret_cast<const char*>(header.data()), header.size());
  out.bytes.append(body);
  out.fds = std::move(fds);
  queue_.push_back(std::move(out));
}

bool FrameWriter::write(int socket) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxFds)> control{};
  while (!queue_.empty()) {
    Outgoing& out = queue_.front();
    iovec part{out.bytes.data() + out.written, out.bytes.size() - out.written};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (out.written == 0 && !out.fds.empty()) {  // they ride on the first byte
      const std::size_t bytes = sizeof(int) * out.fds.size();
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(bytes);
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(bytes);
      std::memcpy(CMSG_DATA(c), out.fds.data(), bytes);
    }
    const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      throw Error(Errc::kUnavailable, "the connection broke: " + errno_text(errno));
    }
    out.written += static_cast<std::size_t>(sent);
    if (out.written == out.bytes.size()) queue_.pop_front();
  }
  return true;
}

}  // namespace preload::wire
