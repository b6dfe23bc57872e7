// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "comm/mpi_group.hpp"

namespace preload::testing_mpi {

// The group of all ranks that this binary was started with.
Group& world();
// The same ranks on a communicator of its own, so that a test may leave it in disorder.
std::unique_ptr<MpiGroup> own_group(std::size_t max_round_bytes = kMaxRoundBytes);

}  // namespace preload::testing_mpi
