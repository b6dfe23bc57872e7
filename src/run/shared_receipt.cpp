// SPDX-License-Identifier: Apache-2.0
#include "run/shared_receipt.hpp"

#include "load/consumed_hashes.hpp"
#include "load/receipt.hpp"

namespace preload::run {

std::string share_receipt(Group& group, const RankPlan& plan, const Cancel& cancel) {
  std::string text;
  if (group.rank() == 0) {
    Receipt receipt = take_receipt(plan.checkpoint);
    add_samples(receipt, plan.checkpoint, consumed_sources(plan.checkpoint, plan.program));
    text = to_json(receipt);
  }
  return group.broadcast(text, 0, {"rank 0 to take the files' receipts", cancel});
}

}  // namespace preload::run
