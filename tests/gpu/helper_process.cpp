// SPDX-License-Identifier: Apache-2.0
#include "gpu/helper_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

namespace preload::test {

namespace {

constexpr int kChildSocket = 3;
constexpr int kWaitMs = 60000;
constexpr std::size_t kMaxFds = 16;

}  // namespace

HelperProcess::HelperProcess(const std::string& role) {
  int ends[2] = {-1, -1};
  check_sys(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "a socket pair");
  socket_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  const std::string option = "--helper=" + role;
  pid_ = static_cast<pid_t>(check_sys(fork(), "fork"));
  if (pid_ == 0) {
    // dup2 clears close-on-exec, except onto itself.
    if (theirs.get() == kChildSocket) {
      fcntl(kChildSocket, F_SETFD, 0);
    } else {
      dup2(theirs.get(), kChildSocket);
    }
    execl("/proc/self/exe", "helper", option.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
}

HelperProcess::~HelperProcess() { kill_hard(); }

void HelperProcess::kill_hard() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int HelperProcess::wait() {
  for (int waited = 0; waited < kWaitMs; waited += 10) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return -1;
}

void send_message(int socket, std::string_view text, const std::vector<int>& fds) {
  std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  check_sys(sendmsg(socket, &message, MSG_NOSIGNAL), "sending to the helper");
}

Message receive_message(int socket) {
  pollfd waiting{socket, POLLIN, 0};
  if (check_sys(poll(&waiting, 1, kWaitMs), "waiting for the helper") == 0) {
    throw Error(Errc::kTimeout, "the helper said nothing for a minute");
  }
  std::array<char, 4096> text{};
  std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  iovec part{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const long bytes =
      check_sys(recvmsg(socket, &header, MSG_CMSG_CLOEXEC), "hearing from the helper");
  if (bytes == 0) throw Error(Errc::kUnavailable, "the helper is gone");
  Message message{std::string(text.data(), static_cast<std::size_t>(bytes)), {}};
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      message.fds.emplace_back(fd);
    }
  }
  return message;
}

}  // namespace preload::test
