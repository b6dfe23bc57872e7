// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "load/direct_read.hpp"

namespace preload {

// An io_uring of one thread, for direct reads with several requests in flight.
class Uring {
 public:
  static constexpr int kDepth = 8;  // requests in flight, at most

  // How many requests, at most kDepth, a read of so many bytes makes use of.
  static int requests_for(std::uint64_t bytes) noexcept;

  static bool is_built() noexcept;  // false in a build without liburing
  // The errno with which the kernel refuses a ring or its reads to this thread, by age (ENOSYS), a
  // seccomp filter or kernel.io_uring_disabled (EPERM); nothing when they work.
  static std::optional<int> refusal() noexcept;

  // Nothing where the kernel refuses.
  static std::unique_ptr<Uring> open() noexcept;
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // With at most `in_flight` requests at once, from 1 to kDepth. No request outlives the call.
  DirectRead read(const DirectRange& range, int in_flight) noexcept;

 private:
  struct Ring;
  explicit Uring(std::unique_ptr<Ring> ring) noexcept;
  std::unique_ptr<Ring> ring_;
};

}  // namespace preload
