// SPDX-License-Identifier: Apache-2.0
#include "cli/exit_table.hpp"

#include <array>

namespace preload::cli {
namespace {

constexpr auto kExitTable = std::to_array<ExitStatus>({
    {"0", "after a requested stop, or done"},
    {"1", "unexpected end"},
    {"2", "usage"},
    {"3", "checkpoint or model refused"},
    {"4", "device or memory"},
    {"5", "launcher or MPI"},
    {"6", "another daemon owns the GPU and slot, or no keeper is there"},
    {"7", "client refused"},
    {"128+n", "when signal n ended it"},
});

}  // namespace

std::span<const ExitStatus> exit_table() noexcept { return kExitTable; }

}  // namespace preload::cli
