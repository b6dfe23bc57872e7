// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "warmup/nccl_timer.hpp"

namespace preload::warmup {
namespace {

[[noreturn]] void refuse() { throw Error(Errc::kLauncher, "this build has no NCCL"); }

}  // namespace

int nccl_library_version(const std::string&) { refuse(); }

std::unique_ptr<NcclTimer> make_nccl_timer(Group&, const std::vector<EngineGroup>&,
                                           std::unique_ptr<CollectiveDevice>,
                                           const NcclTimerOptions&, const Cancel&) {
  refuse();
}

}  // namespace preload::warmup
