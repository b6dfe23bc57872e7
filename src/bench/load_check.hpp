// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "load/loader.hpp"
#include "plan/key.hpp"
#include "plan/load_plan.hpp"

namespace preload::bench {

// What the loads of a plan must give, hashed from the files by the CPU apart from any load.
class LoadCheck {
 public:
  // Reads what the plan reads, twice: each source tensor whole, each operation's rows. The three
  // must outlive this. Throws Error(kCheckpoint) when a file is gone, changed or short.
  LoadCheck(const LoadPlan& plan, const CopyProgram& program, const Checkpoint& checkpoint,
            int threads);

  // Throws Error(kCheckpoint) naming the tensor when a hash differs from the files', or from that
  // of the run before.
  void check(const LoadResult& result);
  std::size_t tensors() const noexcept { return program_.tensors.size(); }

 private:
  void check_served(const std::vector<Hash128>& served) const;
  void check_sources(std::vector<SourceRegion> regions) const;

  const LoadPlan& plan_;
  const CopyProgram& program_;
  const Checkpoint& checkpoint_;
  std::vector<std::optional<Hash128>> served_;   // by tensor; unset where only runs are compared
  std::vector<std::optional<Hash128>> sources_;  // by source tensor
  std::vector<Hash128> before_;                  // what the last run served
};

}  // namespace preload::bench
