// SPDX-License-Identifier: Apache-2.0
#include "serve/service_manager.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/fd.hpp"
#include "unit/serve/temp_dir.hpp"

namespace preload {
namespace {

// What systemd is to a service: a datagram socket whose name is in the environment.
class Manager {
 public:
  explicit Manager(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    check_sys(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length), "bind");
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~Manager() {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
  }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // The next datagram; empty when none comes in time.
  std::string hear(int timeout_ms = 20000) const {
    pollfd polled{socket_.get(), POLLIN, 0};
    if (::poll(&polled, 1, timeout_ms) <= 0) return {};
    std::array<char, 512> buffer;
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  Fd socket_;
};

std::string abstract_name() { return "@preload-test-" + std::to_string(::getpid()); }

TEST(ServiceManager, HearsOfReadinessStatusAndTheEnd) {
  const TempDir temp;
  for (const std::string& name : {temp.path() + "/notify", abstract_name()}) {
    const Manager manager(name);
    ServiceManager ours;
    ours.ready("serving\n2 ranks");
    EXPECT_EQ(manager.hear(), "READY=1\nSTATUS=serving\\n2 ranks\n") << name;
    ours.status("loading");
    EXPECT_EQ(manager.hear(), "STATUS=loading\n");
    ours.stopping();
    EXPECT_EQ(manager.hear(), "STOPPING=1\n");
  }
}

TEST(ServiceManager, IsToldThatTheDaemonLivesOnlyWhileItDoes) {
  const Manager manager(abstract_name());
  ::setenv("WATCHDOG_USEC", "20000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  ServiceManager ours;
  std::atomic<bool> alive = true;
  ours.watch([&] { return alive.load(); });
  EXPECT_EQ(manager.hear(), "WATCHDOG=1\n");
  EXPECT_EQ(manager.hear(), "WATCHDOG=1\n");
  alive = false;
  int heard = 0;
  while (!manager.hear(500).empty()) ASSERT_LT(++heard, 100);
}

TEST(ServiceManager, OfAnotherProcessWantsNoWatchdog) {
  const Manager manager(abstract_name());
  ::setenv("WATCHDOG_USEC", "2000", 1);
  ::setenv("WATCHDOG_PID", "1", 1);
  ServiceManager ours;
  ours.watch([] { return true; });
  EXPECT_EQ(manager.hear(100), "");
}

TEST(ServiceManager, ThatIsNotThereIsNotMissed) {
  ServiceManager none;
  none.ready("serving");
  ::setenv("NOTIFY_SOCKET", "/nowhere/notify", 1);
  ServiceManager gone;
  gone.ready("serving");
  ::setenv("NOTIFY_SOCKET", std::string(200, 'x').c_str(), 1);
  ServiceManager too_long;
  too_long.stopping();
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace preload
