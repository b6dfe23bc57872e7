// SPDX-License-Identifier: Apache-2.0
#include "serve/stop_request.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace preload {
namespace {

constexpr int kWord = 0x50524c44;  // "PRLD"

}  // namespace

bool send_stop_request(int pidfd) noexcept {
  siginfo_t info{};
  info.si_signo = SIGTERM;
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_int = kWord;
  return ::syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, &info, 0) == 0;
}

bool is_stop_request(const signalfd_siginfo& signal) noexcept {
  return signal.ssi_signo == SIGTERM && signal.ssi_code == SI_QUEUE && signal.ssi_int == kWord;
}

}  // namespace preload
