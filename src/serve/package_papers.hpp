// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serve/residency.hpp"
#include "wire/messages.hpp"

namespace preload {

// What the papers of a package say beside its generations.
struct PackagePapers {
  std::vector<wire::LeaseStatus> leases;
  std::uint64_t artifacts = 0;
  bool draining = false;
  bool has_lock = false;  // it comes along, and there may be no generation
  std::uint64_t generation = 1;
};

// JSON of everything but the descriptors.
std::string write_papers(const PackagePapers& papers,
                         const std::vector<const Residency*>& generations);
// Fills `generations` but for their descriptors. Members that this release does not know are
// ignored. Throws Error(kProtocol) naming the member that is wrong.
PackagePapers read_papers(std::string_view text, std::vector<Residency>& generations);

}  // namespace preload
