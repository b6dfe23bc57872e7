// SPDX-License-Identifier: Apache-2.0
#include "serve/descriptor_budget.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "base/fd.hpp"

namespace preload {
namespace {

constexpr std::size_t kReservedFds = 128;  // files, logs, the loop's own, /health
constexpr std::size_t kMostConnections = 256;
constexpr std::size_t kConnectionShare = 4;  // of the limit, at most a quarter
constexpr std::size_t kMostArtifacts = 1024;
constexpr std::size_t kArtifactShare = 8;  // of the limit, at most an eighth
// A deposit and a handover send copies of slabs, manifest, leases and artifacts.
constexpr std::size_t kCopies = 2;
constexpr rlim_t kMostDescriptors = 65536;  // some libraries walk through all there could be

std::size_t descriptor_limit() {
  rlimit limit{};
  check_sys(::getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  return static_cast<std::size_t>(limit.rlim_cur);
}

}  // namespace

std::size_t connection_capacity() {
  return std::clamp<std::size_t>(descriptor_limit() / kConnectionShare, 1, kMostConnections);
}

std::size_t artifact_capacity() {
  return std::clamp<std::size_t>(descriptor_limit() / kArtifactShare, 1, kMostArtifacts);
}

std::size_t lease_capacity(std::size_t max_connections, std::size_t slabs) {
  const std::size_t spare = max_connections + kReservedFds;
  const std::size_t limit = descriptor_limit();
  const std::size_t held = limit > spare ? (limit - spare) / kCopies : 0;
  const std::size_t taken = slabs + 1 + artifact_capacity();
  return held > taken ? held - taken : 1;
}

void raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kMostDescriptors);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace preload
