// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/fd.hpp"

namespace preload {

// Descriptors that one message of a Unix socket carries, at most (the kernel's SCM_MAX_FD).
inline constexpr std::size_t kMaxPassedFds = 253;

// The control data of one message, to send descriptors with it or to receive some. Outlives the
// call that it is used in.
class FdControl {
 public:
  // `fds` ride on `message`; none changes nothing. At most kMaxPassedFds.
  void attach(msghdr& message, std::span<const int> fds) noexcept;
  // Room for `most` descriptors: the kernel installs none beyond, and marks the message MSG_CTRUNC.
  void make_room(msghdr& message, std::size_t most) noexcept;

 private:
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxPassedFds)> bytes_;
};

// Moves every descriptor that came with `message` into `out`: none is lost, whatever happens next.
void collect_fds(msghdr& message, std::vector<Fd>& out);

}  // namespace preload
