// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "wire/frame.hpp"

namespace preload::wire {

// Frames on their way out of a stream socket, as far as it takes them without blocking.
class FrameWriter {
 public:
  // The descriptors are the caller's and must stay open until the frame is written. Throws
  // Error(kInternal) past kMaxBodyBytes or kMaxFds.
  void push(Type type, std::string_view body, std::vector<int> fds = {});
  // With descriptors of its own, any number: what does not fit into the first frame follows in
  // further ones of the same type, whose body says how many came before.
  void push_owned(Type type, std::string_view body, std::vector<Fd> fds);
  // True when nothing is left. Throws Error(kUnavailable) when the peer is gone.
  bool write(int socket);
  bool empty() const noexcept { return queue_.empty(); }

 private:
  struct Outgoing {
    std::string bytes;
    std::size_t written = 0;
    std::vector<int> fds;
    std::vector<Fd> owned;  // those of `fds` that are ours
  };
  std::deque<Outgoing> queue_;
};

// The body of a frame that goes on with the descriptors of the one before.
std::string more_fds_body(std::size_t sent);

}  // namespace preload::wire
