// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace preload {

// What may hold a descriptor each, by the process's limit.

std::size_t connection_capacity();  // at once
std::size_t artifact_capacity();    // of one place
// As many leases as the limit leaves beside connections, slabs and artifacts, when all that a
// keeper or a successor is sent is needed twice.
std::size_t lease_capacity(std::size_t max_connections, std::size_t slabs);
// The soft limit to the hard one, as far as anybody needs it; before anything is counted. Where
// that is not allowed the limit stays.
void raise_descriptor_limit() noexcept;

}  // namespace preload
