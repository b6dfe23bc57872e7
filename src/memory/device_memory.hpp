// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/slab.hpp"

namespace preload {

// Makes `device` current and checks, before anything is allocated, that its free memory holds all
// slabs. Throws Error(kMemory) with needed, free, total and who holds the rest.
void require_device_memory(const std::vector<SlabSpec>& slabs, int device);
// The same text for an allocation that failed although the check passed.
[[noreturn]] void throw_out_of_device_memory(const std::vector<SlabSpec>& slabs, int device,
                                             const std::string& cause);

}  // namespace preload
