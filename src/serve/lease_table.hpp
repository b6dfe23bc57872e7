// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace preload {

// One client's claim on the memory: the read end of a pipe whose write end the client keeps. It
// ends when the last write end is gone, by close or by death.
struct Lease {
  Fd pipe;
  int pid = 0;
  std::string name;
  std::chrono::steady_clock::time_point since;
  std::uint64_t generation = 1;  // that it is of
};
double age_s(const Lease& lease);  // to the millisecond

// A client's own words as far as they are fit for a log line and a table.
std::string printable_name(std::string_view name);

// True for the read end of an anonymous pipe: anything else would never hang up.
bool is_lease_pipe(int fd) noexcept;

// What came with a request to attach. Throws Error(kProtocol) when it is not one lease's pipe.
Fd take_lease_pipe(std::vector<Fd> fds);

// The open leases, watched by one epoll descriptor that an outer loop can watch in turn.
class LeaseTable {
 public:
  LeaseTable();

  int epoll_fd() const noexcept { return epoll_.get(); }  // readable when a lease has ended
  // False, and nothing happens, when the same pipe is there already: descriptors of one lease may
  // come by several ways.
  bool add(Lease lease);
  std::vector<Lease> take_ended();  // never blocks
  std::vector<Lease> take_all();
  std::size_t size() const noexcept { return leases_.size(); }
  const std::map<int, Lease>& leases() const noexcept { return leases_; }

 private:
  void forget(int fd) noexcept;

  Fd epoll_;
  std::map<int, Lease> leases_;           // by descriptor
  std::map<int, std::uint64_t> pipe_of_;  // the kernel's number of each descriptor's pipe
  std::set<std::uint64_t> pipes_;
};

}  // namespace preload
