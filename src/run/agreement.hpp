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

// Runs `work`; what it throws as an Error's value. Cancelled passes.
std::optional<Error> attempt(const std::function<void()>& work);

// What every rank throws alike: to be logged once. `rank` is where it happened.
class AgreedError : public Error {
 public:
  AgreedError(const Error& error, std::optional<int> rank) : Error(error), rank_(rank) {}
  std::optional<int> rank() const noexcept { return rank_; }

 private:
  std::optional<int> rank_;
};

// Collective. Returns when no rank has an error; else throws that of the lowest such rank as
// AgreedError on all.
void agree(Group& group, const std::optional<Error>& mine, const Wait& wait);

// Collective: rank 0 logs `error`, and no rank returns before it has, since the first rank that
// ends may take the others with it. Throws Cancelled with the error's exit status.
[[noreturn]] void say_and_end(Group& group, const AgreedError& error, const Cancel& cancel);

}  // namespace preload::run
