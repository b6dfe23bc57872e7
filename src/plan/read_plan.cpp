// SPDX-License-Identifier: Apache-2.0
#include "plan/read_plan.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "plan/read_plan_builder.hpp"

namespace preload {

namespace {

// Joins rows that touch on both sides into one; an op without bytes gets no rows.
CopyOp join_rows(const CopyOp& op) noexcept {
  CopyOp joined = op;
  if (op.rows > 1 && op.file_stride == op.row_bytes && op.target_stride == target_row_bytes(op)) {
    joined.row_bytes = op.bytes();
    joined.rows = 1;
  }
  if (joined.rows == 1) {
    joined.file_stride = 0;
    joined.target_stride = 0;
  }
  return joined;
}

}  // namespace

std::vector<HeldRows> held_rows(const CopyProgram& program, const LoadPlan& plan,
                                std::uint32_t owner) {
  const std::vector<ServedHash> served = served_hash_sources(program, plan);
  std::vector<HeldRows> held;
  held.reserve(plan.ops.size());
  for (const CopyOp& op : plan.ops) {
    if (op.rows == 0 || op.row_bytes == 0) continue;
    const CopyOp joined = join_rows(op);
    const Placement& place = plan.slabs.placements[op.tensor];
    held.push_back({joined,
                    {.owner = owner,
                     .tensor = op.tensor,
                     .slab = place.slab,
                     .slab_offset = place.offset + joined.target_offset,
                     .target_offset = joined.target_offset,
                     .target_stride = joined.target_stride,
                     .begin = 0,
                     .bytes = joined.row_bytes,
                     .from = op.from,
                     .to = op.to,
                     .hashed = served[op.tensor] == ServedHash::kCopies}});
  }
  return held;
}

void ReadPlanBuilder::add(std::uint32_t reader, const FileRows& rows,
                          std::span<const Delivery> deliveries) {
  ReadPlan& plan = plans_[reader];
  ReadBlock block;
  static_cast<FileRows&>(block) = rows;
  block.first = static_cast<std::uint32_t>(plan.deliveries.size());
  block.count = static_cast<std::uint32_t>(deliveries.size());
  plan.blocks.push_back(block);
  plan.read_bytes += rows.bytes();
  if (rows.rows > 1 && rows.file_stride - rows.row_bytes <= kMaxGapBytes) {
    plan.gap_bytes += (rows.rows - 1) * (rows.file_stride - rows.row_bytes);
  }
  plan.deliveries.insert(plan.deliveries.end(), deliveries.begin(), deliveries.end());
  for (const Delivery& delivery : deliveries) {
    if (delivery.owner == reader) continue;
    const std::uint64_t bytes = rows.rows * delivery.bytes;
    plan.sent_bytes += bytes;
    plans_[delivery.owner].received_bytes += bytes;
    pairs_.insert({reader, delivery.owner});
  }
}

std::vector<ReadPlan> ReadPlanBuilder::take() {
  for (std::uint32_t i = 0; i < plans_.size(); ++i) {
    plans_[i].self = i;
    std::ranges::sort(plans_[i].blocks, {}, [](const ReadBlock& block) {
      return std::tuple(block.file, block.file_offset, block.first);
    });
  }
  for (const auto& [giver, receiver] : pairs_) {
    plans_[giver].receivers.push_back(receiver);
    plans_[receiver].givers.push_back(giver);
  }
  return std::move(plans_);
}

ReadPlan plan_own_reads(std::span<const HeldRows> held, std::uint32_t self) {
  ReadPlanBuilder builder(self + 1);
  for (const HeldRows& part : held) builder.add(self, part.rows, {&part.to, 1});
  return std::move(builder.take().back());
}

}  // namespace preload
