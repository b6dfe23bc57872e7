// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "serve/socket_dir.hpp"

namespace preload {

// Whose a place is, as its directory says. A daemon that was too slow for its successor learns here
// that it has one, and removes nothing that is not its own.
class HeldPlace {
 public:
  // `directory` outlives it.
  HeldPlace(const SocketDir& directory, Endpoint endpoint)
      : directory_(directory), endpoint_(std::move(endpoint)), name_(endpoint_.socket_name()) {}
  HeldPlace(const HeldPlace&) = delete;
  HeldPlace& operator=(const HeldPlace&) = delete;
  ~HeldPlace() { remove(); }

  void take() noexcept { socket_ = look(); }  // what lies under the socket's name now is ours
  // It stays, for another.
  void give_up() noexcept {
    socket_.reset();
    is_given_up_ = true;
  }
  bool is_given_up() const noexcept { return is_given_up_; }
  bool is_held() const noexcept { return socket_.has_value(); }
  void expect_successor() noexcept { holder_ = holder(); }
  // Another's socket lies under the name, or, since a successor was expected, another process wrote
  // itself into the lock.
  bool is_anothers() const noexcept;
  // One lives that has not published itself yet; or that cannot be told now.
  bool may_have_successor() const noexcept;

 private:
  using Inode = std::pair<dev_t, ino_t>;
  std::optional<Inode> look() const noexcept;
  std::optional<int> holder() const noexcept;
  void remove() noexcept;

  const SocketDir& directory_;
  const Endpoint endpoint_;
  const std::string name_;  // of the socket
  std::optional<Inode> socket_;
  bool is_given_up_ = false;
  std::optional<int> holder_;  // of the lock, by its text
};

}  // namespace preload
