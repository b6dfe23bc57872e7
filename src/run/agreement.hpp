// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "comm/mpi_session.hpp"

namespace preload::run {

// Before the job channel is up a rank must not leave alone: the others would wait for it in a
// collective. What a rank ran into is kept, told to all, and thrown on all ranks alike.

// Runs `work`; its Error as a value. Other exceptions, and Cancelled, pass.
std::optional<Error> attempt(const std::function<void()>& work);

// Throws what every rank knows already: as Error on rank 0, which logs it, and as Cancelled with
// the same exit status on the others, so that it is logged once.
[[noreturn]] void throw_shared(const Group& group, const Error& error);

// Collective. Returns when no rank has an error; else throws that of the lowest such rank.
void agree(Group& group, const std::optional<Error>& mine, const Wait& wait);

}  // namespace preload::run
