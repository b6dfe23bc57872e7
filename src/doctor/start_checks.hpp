// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "doctor/check.hpp"

namespace preload::doctor {

// What every rank of `serve` looks at before anything else, quickly: what would otherwise show as
// an error of CUDA, NCCL or MPI that does not say what to do. `cuda`: GPUs may be used; `several`:
// of several ranks.
Checks start_checks(bool cuda, bool several);

}  // namespace preload::doctor
