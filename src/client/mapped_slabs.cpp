// SPDX-License-Identifier: Apache-2.0
#include "client/mapped_slabs.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"

namespace preload::client {

std::vector<std::uint64_t> range_offsets(const std::vector<wire::SlabInfo>& slabs) {
  std::vector<std::uint64_t> offsets{0};
  for (const wire::SlabInfo& slab : slabs) {
    offsets.push_back(offsets.back() + align_up(slab.bytes, kBaseAlignment));
  }
  return offsets;
}

void require_room(const std::vector<wire::SlabInfo>& slabs, const Placement& placement,
                  std::uint64_t free_bytes, const std::string& of_what) {
  std::uint64_t wanted = 0;
  for (const wire::SlabInfo& slab : slabs) {
    if (placement.owns(slab)) wanted += slab.bytes;
  }
  if (wanted <= free_bytes) return;
  throw Error(Errc::kMemory,
              fmt::format("{} takes {} of {} and {} are free{}",
                          placement.copy ? "a copy of the weights" : "the private tensors",
                          format_bytes(wanted), of_what, format_bytes(free_bytes),
                          placement.copy ? ": map the weights instead of copying them" : ""));
}

void throw_address_taken(std::uint64_t address, std::uint64_t bytes, const std::string& reason) {
  throw AddressTaken(fmt::format(
      "the weights cannot lie at {:#x} to {:#x} of this process: {}; attach before other "
      "libraries take addresses, or let the address be chosen",
      address, address + bytes, reason));
}

}  // namespace preload::client
