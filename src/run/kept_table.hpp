// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/mpi_session.hpp"
#include "warmup/tuning_store.hpp"

namespace preload::run {

// Collective. Where this rank finds `table`, when every rank finds the very same; else "" on all,
// and rank 0 warns: ranks that obey different tables wait for each other for ever.
std::string path_kept_by_all(Group& group, warmup::TuningStore& store, const std::string& table,
                             const Wait& wait);

}  // namespace preload::run
