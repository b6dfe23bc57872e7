// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serve/residency.hpp"

namespace preload::test {

// What is served from host memory, served from a GPU's instead: the same bytes in exportable memory
// of CUDA device `ordinal`, whose UUID is the place from then on. No context is left.
Residency on_device(Residency host, int ordinal);

}  // namespace preload::test
