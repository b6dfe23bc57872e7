// SPDX-License-Identifier: Apache-2.0
#include "client/lease.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace preload::client {
namespace {

// Every open write end of this process. fork() copies them all; its child closes its copies before
// it runs a line of its own.
struct WriteEnds {
  std::mutex mutex;
  std::vector<int> fds;
};

WriteEnds& write_ends() {
  // Never destroyed: a process may fork while its static objects go.
  static WriteEnds& ends = *std::make_unique<WriteEnds>().release();
  return ends;
}

void before_fork() { write_ends().mutex.lock(); }
void after_fork_in_parent() { write_ends().mutex.unlock(); }
void after_fork_in_child() {
  WriteEnds& ends = write_ends();
  for (int fd : ends.fds) ::close(fd);
  ends.fds.clear();
  ends.mutex.unlock();
}

void install_fork_handlers() {
  static const int result =
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (result != 0) {
    throw Error(Errc::kInternal, "pthread_atfork: " + errno_text(result));
  }
}

}  // namespace

Lease::Lease() : owner_(::getpid()) {
  install_fork_handlers();
  WriteEnds& ends = write_ends();
  const std::lock_guard lock(ends.mutex);  // no fork between the pipe and its registration
  ends.fds.reserve(ends.fds.size() + 1);
  int pipe_fds[2] = {-1, -1};
  check_sys(::pipe2(pipe_fds, O_CLOEXEC), "making a lease pipe");
  read_end_.reset(pipe_fds[0]);
  write_end_ = pipe_fds[1];
  ends.fds.push_back(write_end_);
}

Lease::~Lease() { end(); }

void Lease::end() noexcept {
  WriteEnds& ends = write_ends();
  const std::lock_guard lock(ends.mutex);
  // Not there any more in a forked child: its number may be somebody else's by now.
  const auto it = std::find(ends.fds.begin(), ends.fds.end(), write_end_);
  if (!is_of_this_process() || it == ends.fds.end()) return;
  ends.fds.erase(it);
  ::close(write_end_);
}

bool Lease::is_of_this_process() const noexcept { return owner_ == ::getpid(); }

}  // namespace preload::client
