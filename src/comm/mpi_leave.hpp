// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace preload {

// Leaves MPI if it is still there, whatever collectives were given up: every rank is to do so. A
// launcher takes a process that ends without for one that failed, even with status 0.
void leave_mpi() noexcept;

}  // namespace preload
