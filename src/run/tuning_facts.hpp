// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/environment.hpp"
#include "plan/topology.hpp"

namespace preload::run {

// What one rank tells the others before it is decided whether NCCL is tuned.
struct TuningFacts {
  int nccl_version = 0;                // of the library that would be opened; 0: none
  std::string in_the_way;              // of tuning on this rank; empty when nothing is
  std::string gpu;                     // its name
  std::uint64_t free_bytes = 0;        // of it
  std::vector<std::string> variables;  // NCCL_…, as far as they decide how NCCL carries messages
  artifact::Environment environment = {};  // of the rank's GPU and driver
  friend bool operator==(const TuningFacts&, const TuningFacts&) = default;
};
std::string encode(const TuningFacts& facts);
TuningFacts decode_tuning_facts(std::string_view text);  // throws Error(kInternal)

// "NAME=VALUE" of those variables as NCCL has them, from its files too; sorted.
std::vector<std::string> nccl_variables();

// Why a job whose ranks have these facts, each with so many communicators, tunes nothing; empty
// when it does.
std::string not_tuned_because(const std::vector<TuningFacts>& ranks, std::size_t communicators);
// What decides, beside the model and its sizes, how NCCL carries its messages: a part of the key
// under which a table is kept.
std::map<std::string, std::string> tuning_fields(const std::vector<TuningFacts>& ranks,
                                                 const std::vector<RankPlace>& places,
                                                 int most_tokens);
// What the whole job runs on, the same on every rank: of each field the values of all ranks, and
// the NCCL's version.
artifact::Environment job_environment(const std::vector<TuningFacts>& ranks);
// Of each of the two buffers of a rank.
std::uint64_t tuning_buffer_bytes(const std::vector<TuningFacts>& ranks) noexcept;

}  // namespace preload::run
