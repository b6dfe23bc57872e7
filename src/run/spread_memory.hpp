// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "comm/rank_exchange.hpp"
#include "load/loader.hpp"
#include "memory/slab.hpp"
#include "run/launch.hpp"
#include "run/rank_plan.hpp"

namespace preload::run {

// How this rank reaches the memory of those that it hands something to: mapped, where they share a
// node and their memory can be; by messages otherwise.
class SpreadMemory final : public PeerSlabs {
 public:
  // Collective. Where neither is to be had, the reads of `plan` fall back to all that this rank
  // holds, with a warning; with --spread always that is an error.
  SpreadMemory(Group& group, const cli::ServeOptions& options, const Launch& launch,
               const SlabMemory& memory, RankPlan& plan, const Cancel& cancel);
  std::byte* address(std::uint32_t member, std::uint32_t slab) const noexcept override;
  // Null where all is mapped.
  const LoadMessages* messages() const noexcept { return messages_ ? &*messages_ : nullptr; }

 private:
  void map(Group& group, const Launch& launch, const SlabMemory& memory, const SpreadPlan& spread,
           const ReadPlan& reads, const Cancel& cancel);

  std::map<std::uint32_t, std::unique_ptr<MappedSlabs>> mapped_;  // by member
  std::unique_ptr<RankExchange> exchange_;
  std::optional<LoadMessages> messages_;
};

}  // namespace preload::run
