// SPDX-License-Identifier: Apache-2.0
#include "serve/lease_table.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>

namespace preload {

bool is_lease_pipe(int fd) noexcept {
  struct stat status {};
  struct statfs system {};
  const int flags = ::fcntl(fd, F_GETFL);
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && ::fstatfs(fd, &system) == 0 &&
         system.f_type == PIPEFS_MAGIC && flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
}

LeaseTable::LeaseTable()
    : epoll_(static_cast<int>(check_sys(::epoll_create1(EPOLL_CLOEXEC), "epoll_create"))) {}

void LeaseTable::add(Lease lease) {
  const int fd = lease.pipe.get();
  epoll_event event{};
  event.events = 0;  // a hang-up is always reported; what a client writes is of no interest
  event.data.fd = fd;
  check_sys(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event), "cannot watch a lease");
  leases_.emplace(fd, std::move(lease));
}

// The client may hold the same read end: our close alone would not end the watch.
void LeaseTable::forget(int fd) noexcept {
  epoll_event none{};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &none);
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
