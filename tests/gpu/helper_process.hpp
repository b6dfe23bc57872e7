// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace preload::test {

// Another process of this very binary in one of the roles of helper_roles.cpp, joined by a socket.
// It is killed and reaped at the end.
class HelperProcess {
 public:
  explicit HelperProcess(const std::string& role);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  int socket() const noexcept { return socket_.get(); }
  void kill_hard();  // SIGKILL, and waits for its end
  int wait();        // exit status, or 128 + signal; -1 after a minute

 private:
  pid_t pid_ = -1;
  Fd socket_;
};

// One message of text and descriptors. receive fails after a minute.
struct Message {
  std::string text;
  std::vector<Fd> fds;
};
void send_message(int socket, std::string_view text, const std::vector<int>& fds = {});
Message receive_message(int socket);

// Runs the role that argv names, if it names one; returns its exit status, else -1.
int run_helper_role(int argc, char** argv);

}  // namespace preload::test
