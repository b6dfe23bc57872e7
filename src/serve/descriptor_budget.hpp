// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace preload {

// What may hold a descriptor each, by the process's limit.

std::size_t artifact_capacity();  // of one place
// As many leases as the limit leaves beside connections, slabs and artifacts.
std::size_t lease_capacity(std::size_t max_connections, std::size_t slabs);

}  // namespace preload
