// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/read_plan.hpp"

namespace preload {

// A rank's reads in two: blocks that it places in its own memory alone, and blocks of which others
// get something. Byte counts, receivers and givers stay with the plan that was split.
struct ReadParts {
  ReadPlan own;
  ReadPlan shared;
};
ReadParts split_reads(const ReadPlan& plan);

// The shared blocks of each other member that hands something to `self`, in the giver's order, with
// the deliveries to `self` alone: what a rank must know to take apart what it is sent. `self` of
// each is the giver.
std::vector<ReadPlan> plan_incoming(const std::vector<ReadPlan>& members, std::uint32_t self);

}  // namespace preload
