// SPDX-License-Identifier: Apache-2.0
#include "wire/frame_writer.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/fd_passing.hpp"

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

void FrameWriter::push_owned(Type type, std::string_view body, std::vector<Fd> fds) {
  std::size_t next = 0;
  do {
    std::vector<int> numbers;
    std::vector<Fd> owned;
    const std::size_t first = next;
    for (; next < fds.size() && owned.size() < kMaxFds; ++next) {
      numbers.push_back(fds[next].get());
      owned.push_back(std::move(fds[next]));
    }
    push(type, first == 0 ? std::string(body) : more_fds_body(first), std::move(numbers));
    queue_.back().owned = std::move(owned);
  } while (next < fds.size());
}

std::string more_fds_body(std::size_t sent) { return fmt::format("{{\"fds_from\":{}}}", sent); }

bool FrameWriter::write(int socket) {
  FdControl control;
  while (!queue_.empty()) {
    Outgoing& out = queue_.front();
    iovec part{out.bytes.data() + out.written, out.bytes.size() - out.written};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (out.written == 0) control.attach(message, out.fds);  // they ride on the first byte
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
