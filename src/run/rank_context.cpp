// SPDX-License-Identifier: Apache-2.0
#include "run/rank_context.hpp"

namespace preload::run {

RankContext::RankContext(const cli::ServeOptions& serve_options, const Launcher& by,
                         const Launch& placed, Group& ranks, RankControl& rank_control,
                         Supervision& job)
    : options(serve_options),
      launcher(by),
      launch(placed),
      group(ranks),
      control(rank_control),
      supervision(job),
      kind(placed.cuda ? serve_options.export_kind : HandleKind::kHost),
      front(serve_options, placed, rank_control) {}

std::uint64_t RankContext::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const RoleDaemon& daemon : daemons) sum += daemon.bytes;
  return sum;
}

int RankContext::local_daemons() const noexcept {
  int sum = 0;
  for (const RoleDaemon& daemon : daemons) sum += daemon.role.local_daemons;
  return sum;
}

}  // namespace preload::run
