// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "wire/frame.hpp"

namespace preload::wire {

// Takes one frame after another from a stream socket without ever blocking. It reads no further
// than the frame's end, so a descriptor always belongs to the frame whose first bytes brought it.
class FrameReader {
 public:
  enum class Result {
    kNeedMore,  // nothing more to read now
    kFrame,     // take() has one
    kClosed,    // the peer closed between two frames
  };

  // No more than `max_fds` descriptors are let in, and `max_package_fds` with a message that
  // carries a package; more are an error.
  explicit FrameReader(std::size_t max_fds = kMaxFds, std::size_t max_package_fds = 0)
      : max_fds_(max_fds), max_package_fds_(max_package_fds) {}

  // Throws Error(kProtocol) on bytes that are no frame, descriptors where there may be none, or a
  // close in mid-frame; Error(kUnavailable) when the connection broke. The reader is of no use
  // afterwards.
  Result read(int socket);
  Frame take();  // after kFrame

  // A frame has begun and is not complete.
  bool mid_frame() const noexcept { return header_bytes_ > 0; }

 private:
  std::size_t receive(int socket, std::byte* into, std::size_t bytes, bool fds_allowed);
  std::size_t room_for_next(int socket) const noexcept;

  std::size_t max_fds_, max_package_fds_;
  std::size_t room_ = 0;  // descriptors that the current frame may bring
  std::array<std::byte, kHeaderBytes> header_{};
  std::size_t header_bytes_ = 0;  // of the current frame that have arrived
  std::optional<Header> decoded_;
  std::string body_;
  std::size_t body_bytes_ = 0;
  std::vector<Fd> fds_;
};

}  // namespace preload::wire
