// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "serve/artifact_store.hpp"
#include "serve/lease_table.hpp"
#include "serve/residency.hpp"
#include "wire/messages.hpp"

namespace preload {

// Everything that one process needs to go on serving what another served: how a residency gets into
// a keeper, out of it, and from a daemon to its successor.
struct Package {
  // What is served; then older ones that are still leased. None of a daemon that has released all.
  std::vector<Residency> generations;
  std::vector<Lease> leases;
  std::vector<Artifact> artifacts;  // of the place: they go on whatever is served there
  bool draining = false;            // released: it goes with its last lease
  std::uint64_t generation = 1;     // of what is, or was, served
  Fd lock;                          // of a daemon that hands over, else empty
};

// As descriptors, all duplicates: the papers (JSON in a sealed memfd), each generation's manifest
// and slabs, the leases' pipes, the artifacts, then the lock. cuda-ipc memory is its process's own:
// throws Error(kUsage).
struct PackageView {
  std::vector<const Residency*> generations;
  const LeaseTable* leases = nullptr;
  const ArtifactStore* artifacts = nullptr;
  bool draining = false;
  std::uint64_t generation = 1;
  int lock = -1;
};
std::vector<Fd> pack(const PackageView& view);

// Trusts nothing: throws Error(kProtocol) that names what is missing, not sealed, too small or no
// lease's pipe.
Package unpack(std::vector<Fd> fds);

// Leases as messages name them, with a duplicate of each pipe.
std::vector<wire::LeaseStatus> pack_leases(const LeaseTable& leases, std::vector<Fd>& pipes);
// Throws Error(kProtocol) when a descriptor is no lease's pipe.
Lease unpack_lease(const wire::LeaseStatus& status, Fd pipe);

void check_socket(int fd);  // throws Error(kProtocol)

bool is_same_place(const Endpoint& one, const Endpoint& other);

std::string_view kind_on_wire(HandleKind kind) noexcept;
std::string_view export_kind_of(const Residency& residency);
std::uint64_t bytes_of(const Residency& residency) noexcept;

}  // namespace preload
