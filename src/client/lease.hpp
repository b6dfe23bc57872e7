// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/fd.hpp"

namespace preload::client {

// The client's end of a lease: the write end of a pipe whose read end the daemon watches. Closing
// it, or dying, ends the lease. CLOEXEC, and closed in forked children, so that only the process
// that attached can hold it.
class Lease {
 public:
  Lease();
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  int read_end() const noexcept { return read_end_.get(); }
  void sent() noexcept { read_end_.reset(); }  // the daemon has its own descriptor now
  void end() noexcept;                         // before its time: the memory is not used any more
  // False in a process forked from the one that attached.
  bool is_of_this_process() const noexcept;

 private:
  Fd read_end_;
  int write_end_ = -1;
  pid_t owner_ = 0;
};

}  // namespace preload::client
