// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "wire/frame.hpp"

namespace preload::wire {

// Frames on their way out of a stream socket, as far as it takes them without blocking. The
// descriptors of a frame are the caller's and must stay open until it is written.
class FrameWriter {
 public:
  // Throws Error(kInternal) past kMaxBodyBytes or kMaxFds.
  void push(Type type, std::string_view body, std::vector<int> fds = {});
  // True when nothing is left. Throws Error(kUnavailable) when the peer is gone.
  bool write(int socket);
  bool empty() const noexcept { return queue_.empty(); }

 private:
  struct Outgoing {
    std::string bytes;
    std::size_t written = 0;
    std::vector<int> fds;
  };
  std::deque<Outgoing> queue_;
};

}  // namespace preload::wire
