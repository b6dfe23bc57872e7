// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <stdexcept>

namespace preload::test {

// While it lives no file of this process may grow: a file size limit stands for a full file system.
class NoRoom {
 public:
  NoRoom() : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    if (::getrlimit(RLIMIT_FSIZE, &before_) != 0) throw std::runtime_error("getrlimit failed");
    const rlimit none{0, before_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &none) != 0) throw std::runtime_error("setrlimit failed");
  }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
  ~NoRoom() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

}  // namespace preload::test
