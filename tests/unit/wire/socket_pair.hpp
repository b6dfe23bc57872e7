// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

#include "base/fd.hpp"

namespace preload::wire {

// Two ends of one stream, as a client and a daemon have them.
class SocketPair {
 public:
  SocketPair() {
    std::array<int, 2> ends{};
    check_sys(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), "socketpair");
    a_.reset(ends[0]);
    b_.reset(ends[1]);
  }
  int a() const noexcept { return a_.get(); }
  int b() const noexcept { return b_.get(); }
  void close_a() { a_.reset(); }

 private:
  Fd a_, b_;
};

// Of this process, with the one that counts them.
inline std::size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir("/proc/self/fd"), &::closedir);
  std::size_t count = 0;
  while (const dirent* entry = ::readdir(dir.get()))
    if (std::string_view(entry->d_name)[0] != '.') ++count;
  return count;
}

}  // namespace preload::wire
