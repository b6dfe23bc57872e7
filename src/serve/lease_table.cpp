// SPDX-License-Identifier: Apache-2.0
#include "serve/lease_table.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>
#include <cmath>

namespace preload {
namespace {

constexpr std::size_t kMaxNameLength = 64;

}  // namespace

bool is_lease_pipe(int fd) noexcept {
  struct stat status {};
  struct statfs system {};
  const int flags = ::fcntl(fd, F_GETFL);
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && ::fstatfs(fd, &system) == 0 &&
         system.f_type == PIPEFS_MAGIC && flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
}

Fd take_lease_pipe(std::vector<Fd> fds) {
  if (fds.size() != 1 || !is_lease_pipe(fds.front().get()))
    throw Error(Errc::kProtocol,
                "attach must come with one descriptor, the read end of the lease pipe");
  return std::move(fds.front());
}

double age_s(const Lease& lease) {
  const auto age = std::chrono::steady_clock::now() - lease.since;
  return std::round(std::chrono::duration<double>(age).count() * 1000) / 1000;
}

std::string printable_name(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, kMaxNameLength))
    out.push_back(c >= 0x20 && c < 0x7F ? c : '?');
  return out;
}

LeaseTable::LeaseTable()
    : epoll_(static_cast<int>(check_sys(::epoll_create1(EPOLL_CLOEXEC), "epoll_create"))) {}

bool LeaseTable::add(Lease lease) {
  const int fd = lease.pipe.get();
  struct stat status {};
  check_sys(::fstat(fd, &status), "looking at a lease");
  const auto pipe = static_cast<std::uint64_t>(status.st_ino);
  if (pipes_.contains(pipe)) return false;
  epoll_event event{};
  event.events = 0;  // a hang-up is always reported; what a client writes is of no interest
  event.data.fd = fd;
  check_sys(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "cannot watch a lease");
  leases_.emplace(fd, std::move(lease));
  pipe_of_[fd] = pipe;
  pipes_.insert(pipe);
  return true;
}

// The client may hold the same read end: our close alone would not end the watch.
void LeaseTable::forget(int fd) noexcept {
  epoll_event none{};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &none);
  if (const auto it = pipe_of_.find(fd); it != pipe_of_.end()) {
    pipes_.erase(it->second);
    pipe_of_.erase(it);
  }
}

std::vector<Lease> LeaseTable::take_ended() {
  std::vector<Lease> ended;
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return ended;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      forget(fd);
      auto node = leases_.extract(fd);
      if (!node.empty()) ended.push_back(std::move(node.mapped()));
    }
  }
}

std::vector<Lease> LeaseTable::take_all() {
  std::vector<Lease> all;
  for (auto& [fd, lease] : leases_) {
    forget(fd);
    all.push_back(std::move(lease));
  }
  leases_.clear();
  return all;
}

}  // namespace preload
