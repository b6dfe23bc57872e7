// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "load/loader.hpp"
#include "memory/slab.hpp"
#include "run/launch.hpp"
#include "run/rank_plan.hpp"

namespace preload::run {

// The memory of this node's other ranks, mapped here as far as this rank hands something to them.
class NodeMemory final : public PeerSlabs {
 public:
  // Collective. Where ranks of this node cannot map each other's memory, `plan.reads` falls back to
  // reading all that this rank holds, with a warning; with --spread always that is an error.
  NodeMemory(Group& group, const cli::ServeOptions& options, const Launch& launch,
             const SlabMemory& memory, RankPlan& plan, const Cancel& cancel);
  std::byte* address(std::uint32_t rank, std::uint32_t slab) const noexcept override {
    return mapped_.at(rank)->address(slab);
  }

 private:
  void map(Group& group, const Launch& launch, const SlabMemory& memory, const RankPlan& plan,
           const Cancel& cancel);

  std::map<std::uint32_t, std::unique_ptr<MappedSlabs>> mapped_;  // by rank on the node
};

}  // namespace preload::run
