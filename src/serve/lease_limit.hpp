// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace preload {

// Leases hold a descriptor each: as many as the process's limit leaves beside connections and
// slabs.
std::size_t lease_capacity(std::size_t max_connections, std::size_t slabs);

}  // namespace preload
