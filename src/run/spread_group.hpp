// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.hpp"
#include "checkpoint/checkpoint.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "plan/spread_choice.hpp"
#include "plan/spread_group.hpp"
#include "run/launch.hpp"

namespace preload::run {

// What decides how far spreading goes, of one rank.
struct SpreadFacts {
  bool hot = false;            // its node has the files in its page cache
  bool network_files = false;  // they lie on a network file system: all nodes share its rate
  double network = 0;          // bytes a second of its host's network; 0: unknown
  std::string no_messages;     // why it cannot exchange messages; empty when it can
};
std::string encode(const SpreadFacts& facts);
SpreadFacts decode_spread_facts(std::string_view text);
// Collective: every rank's facts, by rank.
std::vector<SpreadFacts> gather_spread_facts(Group& group, const cli::ServeOptions& options,
                                             const Launch& launch, const Checkpoint& checkpoint,
                                             const Cancel& cancel);

SpreadGroup node_group(const Launch& launch);
// The nodes that this rank's node may share reads with; its own alone where that cannot pay, or
// cannot be. Throws Error(kLauncher) when --spread always asks for what cannot be.
SpreadGroup wide_group(const Launch& launch, Spread spread, const std::vector<SpreadFacts>& facts);

// What to reckon with in a group, when each of its nodes reads for itself, and together.
LinkRates node_rates(const Launch& launch, const SpreadGroup& group,
                     const std::vector<SpreadFacts>& facts);
LinkRates wide_rates(const Launch& launch, const SpreadGroup& group,
                     const std::vector<SpreadFacts>& facts);

}  // namespace preload::run
