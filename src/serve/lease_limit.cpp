// SPDX-License-Identifier: Apache-2.0
#include "serve/lease_limit.hpp"

#include <sys/resource.h>

#include "base/fd.hpp"

namespace preload {
namespace {

constexpr std::size_t kReservedFds = 128;  // files, logs, the loop's own, /health

}  // namespace

std::size_t lease_capacity(std::size_t max_connections, std::size_t slabs) {
  rlimit limit{};
  check_sys(::getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  const std::size_t taken = max_connections + slabs + kReservedFds;
  return limit.rlim_cur > taken ? static_cast<std::size_t>(limit.rlim_cur) - taken : 1;
}

}  // namespace preload
