// SPDX-License-Identifier: Apache-2.0
#include "serve/service_manager.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/environment.hpp"
#include "base/fd.hpp"
#include "base/printable.hpp"

namespace preload {
namespace {

std::optional<long long> number(const std::string& text) {
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

// The variables are inherited by children, for whom they are not meant.
std::optional<std::chrono::microseconds> watchdog_time() {
  const std::string pid = environment("WATCHDOG_PID");
  if (!pid.empty() && number(pid) != static_cast<long long>(::getpid())) return std::nullopt;
  const auto time = number(environment("WATCHDOG_USEC"));
  if (!time) return std::nullopt;
  return std::chrono::microseconds(*time);
}

}  // namespace

ServiceManager::ServiceManager()
    : socket_(environment("NOTIFY_SOCKET")), watchdog_(watchdog_time()) {}

void ServiceManager::send(std::string_view message) const noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const Fd out(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!out) return;
  ::sendto(out.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address), length);
}

void ServiceManager::ready(std::string_view status) {
  send(fmt::format("READY=1\nSTATUS={}\n", one_line(status)));
}

void ServiceManager::status(std::string_view status) {
  send(fmt::format("STATUS={}\n", one_line(status)));
}

void ServiceManager::stopping() { send("STOPPING=1\n"); }

void ServiceManager::watch(std::function<bool()> alive) {
  if (socket_.empty() || !watchdog_) return;
  thread_ = std::jthread([this, alive = std::move(alive)](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    do {
      if (alive()) send("WATCHDOG=1\n");
    } while (!changed.wait_for(lock, stop, *watchdog_ / 2, [&] { return stop.stop_requested(); }));
  });
}

}  // namespace preload
