// SPDX-License-Identifier: Apache-2.0
#include "memory/adopted_slabs.hpp"

#include <utility>

#include "base/error.hpp"

namespace preload {

AdoptedSlabs::AdoptedSlabs(HandleKind kind, const std::vector<SlabSpec>& slabs,
                           std::vector<SlabHandle> handles, int device)
    : kind_(kind), handles_(std::move(handles)) {
  std::vector<Fd> fds;
  for (const SlabHandle& handle : handles_) fds.push_back(duplicate(handle.fd.get()));
  mapped_ = map_peer_slabs(kind, slabs, fds, device, false);
}

std::vector<Fd> AdoptedSlabs::share() const {
  throw Error(Errc::kInternal, "adopted memory is not shared for writing");
}

}  // namespace preload
