// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "serve/artifact_store.hpp"

namespace preload {

// Artifacts on their way from one process to another: a list of what they are, a line of JSON each
// in a sealed memfd, then the content of each. Of none, no descriptor at all.
void pack_artifacts(const std::vector<const Artifact*>& artifacts, std::vector<Fd>& fds);

// How many descriptors so many artifacts come with.
std::size_t artifact_fds(std::uint64_t count) noexcept;

// Throws Error(kProtocol) that names what does not fit the list.
std::vector<Artifact> unpack_artifacts(std::vector<Fd> fds);

}  // namespace preload
