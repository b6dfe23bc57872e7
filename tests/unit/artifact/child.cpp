// SPDX-License-Identifier: Apache-2.0
#include "unit/artifact/child.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>

namespace preload::artifact {
namespace {

constexpr int kThrew = 99;

}  // namespace

Child::Child(const std::function<int()>& work) : pid_(::fork()) {
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ > 0) return;
  ::alarm(120);  // whatever becomes of the test
  int status = kThrew;
  try {
    status = work();
  } catch (const std::exception&) {
    // The status says so.
  }
  ::_exit(status);
}

Child::~Child() {
  if (pid_ <= 0) return;
  kill();
  wait();
}

int Child::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Child::kill() { ::kill(pid_, SIGKILL); }

bool wait_until(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace preload::artifact
