// SPDX-License-Identifier: Apache-2.0
#include "base/fd_passing.hpp"

#include <cstring>

namespace preload {

void FdControl::attach(msghdr& message, std::span<const int> fds) noexcept {
  if (fds.empty()) return;
  bytes_ = {};
  message.msg_control = bytes_.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
}

void FdControl::make_room(msghdr& message, std::size_t most) noexcept {
  message.msg_control = bytes_.data();
  message.msg_controllen = CMSG_LEN(sizeof(int) * most);
}

void collect_fds(msghdr& message, std::vector<Fd>& out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      out.emplace_back(fd);
    }
  }
}

}  // namespace preload
