// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/cancel.hpp"
#include "comm/mpi_session.hpp"
#include "run/rank_plan.hpp"

namespace preload::run {

// Collective. By what clients know the loaded files again, as rank 0 finds them: JSON of a Receipt
// with samples of what the program consumes.
std::string share_receipt(Group& group, const RankPlan& plan, const Cancel& cancel);

}  // namespace preload::run
