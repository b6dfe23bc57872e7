// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "comm/mpi_session.hpp"
#include "warmup/collective_device.hpp"
#include "warmup/collective_timer.hpp"
#include "warmup/engine_groups.hpp"

namespace preload::warmup {

// The version of the NCCL that would be opened. Throws Error(kLauncher) when there is none, or this
// build has none.
int nccl_library_version(const std::string& library);

struct NcclTimerOptions {
  std::string library;  // --nccl-library
  std::string plugin;   // path of NCCL's tuner plugin; empty: nothing is offered
  std::chrono::seconds form_timeout{20};
  std::chrono::seconds run_timeout{120};  // of one timed run
};

// Collective over `group`: forms this rank's groups as communicators of NCCL. Its destruction gives
// them up; release() ends them in order.
class NcclTimer : public CollectiveTimer {
 public:
  virtual void release() = 0;  // when no rank runs anything any more; collective
};
std::unique_ptr<NcclTimer> make_nccl_timer(Group& group, const std::vector<EngineGroup>& groups,
                                           std::unique_ptr<CollectiveDevice> device,
                                           const NcclTimerOptions& options, const Cancel& cancel);

}  // namespace preload::warmup
