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
#include "run/launch.hpp"

namespace preload::run {

// Ranks [first, first + count) that hand each other what they read: those of one node, or of a few
// whole nodes. Its members are numbered from 0.
struct SpreadGroup {
  int first = 0;
  int count = 1;
  int nodes = 1;
  std::uint32_t member(int global) const noexcept {
    return static_cast<std::uint32_t>(global - first);
  }
  friend bool operator==(const SpreadGroup&, const SpreadGroup&) = default;
};

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

// Whole nodes with at most so many ranks: every rank plans for all of its group, and any two of
// them may exchange messages.
inline constexpr int kMostGroupRanks = 64;

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
