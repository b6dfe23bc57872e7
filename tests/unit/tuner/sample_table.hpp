// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tuner/tuning_table.hpp"

namespace preload::test {

// A table of eight ranks on one node, as text and as the values that it has to have. All-reduce has
// a choice for 1 KiB to 64 KiB and another up to 1 MiB, and NCCL's own choice above; all-gather one
// for registered buffers alone, in communicators of four ranks.
std::string sample_text();
tuner::TuningTable sample_table();

}  // namespace preload::test
