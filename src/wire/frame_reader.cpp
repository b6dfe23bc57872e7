// SPDX-License-Identifier: Apache-2.0
#include "wire/frame_reader.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/fd_passing.hpp"

namespace preload::wire {
namespace {

constexpr std::size_t kReadChunk = 64 * 1024;  // a body grows as it arrives, not as it announces

constexpr std::size_t kEnd = static_cast<std::size_t>(-1);

}  // namespace

// Bytes received; 0 when there are none now, kEnd when the peer has closed.
std::size_t FrameReader::receive(int socket, std::byte* into, std::size_t bytes, bool fds_allowed) {
  FdControl control;
  iovec part{into, bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // The kernel installs no descriptor that has no room here: a flood of them costs us nothing.
  control.make_room(message, std::max<std::size_t>(room_, 1));
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    throw Error(Errc::kUnavailable, "the connection broke: " + errno_text(errno));
  }
  const std::size_t before = fds_.size();
  collect_fds(message, fds_);
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    throw Error(Errc::kProtocol,
                "a message came with more descriptors than are allowed there, or than this process "
                "may open: raise `ulimit -n` if the peer is in order");
  if (!fds_allowed && fds_.size() != before)
    throw Error(Errc::kProtocol, "descriptors came in the middle of a message");
  if (fds_.size() > room_)
    throw Error(Errc::kProtocol, "a message came with descriptors that it does not call for");
  return got == 0 ? kEnd : static_cast<std::size_t>(got);
}

// Descriptors come with a frame's first byte, before its type is read: a look ahead, which takes
// neither, tells how many to let in. A header that is not there whole announces no package.
std::size_t FrameReader::room_for_next(int socket) const noexcept {
  if (max_package_fds_ <= max_fds_) return max_fds_;
  std::array<std::byte, kHeaderBytes> header{};
  ssize_t got = 0;
  do {
    got = ::recv(socket, header.data(), header.size(), MSG_PEEK | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(header.size())) return max_fds_;
  const auto type = static_cast<Type>(std::to_integer<unsigned>(header[6]) |
                                      std::to_integer<unsigned>(header[7]) << 8U);
  return carries_package(type) ? max_package_fds_ : max_fds_;
}

FrameReader::Result FrameReader::read(int socket) {
  if (header_bytes_ == 0) room_ = room_for_next(socket);
  while (header_bytes_ < kHeaderBytes) {
    const std::size_t got = receive(socket, header_.data() + header_bytes_,
                                    kHeaderBytes - header_bytes_, header_bytes_ == 0);
    if (got == kEnd) {
      if (header_bytes_ == 0) return Result::kClosed;
      throw Error(Errc::kProtocol, "the peer closed in the middle of a message");
    }
    if (got == 0) return Result::kNeedMore;
    header_bytes_ += got;
  }
  if (!decoded_) {
    decoded_ = decode_header(header_);
    body_.clear();
    body_bytes_ = 0;
  }
  while (body_bytes_ < decoded_->length) {
    const std::size_t want = std::min<std::size_t>(decoded_->length - body_bytes_, kReadChunk);
    body_.resize(body_bytes_ + want);
    const std::size_t got =
        receive(socket, reinterpret_cast<std::byte*>(body_.data()) + body_bytes_, want, false);
    body_.resize(body_bytes_ + (got == kEnd ? 0 : got));
    if (got == kEnd) throw Error(Errc::kProtocol, "the peer closed in the middle of a message");
    if (got == 0) return Result::kNeedMore;
    body_bytes_ += got;
  }
  return Result::kFrame;
}

Frame FrameReader::take() {
  Frame frame;
  frame.type = decoded_->type;
  frame.body = std::exchange(body_, {});
  frame.fds = std::exchange(fds_, {});
  decoded_.reset();
  header_bytes_ = 0;
  body_bytes_ = 0;
  return frame;
}

}  // namespace preload::wire
