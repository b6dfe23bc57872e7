// SPDX-License-Identifier: Apache-2.0
#include "serve/descriptor_budget.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "base/fd.hpp"

namespace preload {
namespace {

constexpr std::size_t kReservedFds = 128;  // files, logs, the loop's own, /health
constexpr std::size_t kMostArtifacts = 1024;
constexpr std::size_t kArtifactShare = 8;  // of the limit, at most an eighth

std::size_t descriptor_limit() {
  rlimit limit{};
  check_sys(::getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  return static_cast<std::size_t>(limit.rlim_cur);
}

}  // namespace

std::size_t artifact_capacity() {
  return std::clamp<std::size_t>(descriptor_limit() / kArtifactShare, 1, kMostArtifacts);
}

std::size_t lease_capacity(std::size_t max_connections, std::size_t slabs) {
  const std::size_t limit = descriptor_limit();
  const std::size_t taken = max_connections + slabs + artifact_capacity() + kReservedFds;
  return limit > taken ? limit - taken : 1;
}

}  // namespace preload
