// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.hpp"
#include "comm/launcher.hpp"

namespace preload {

// The group of processes that the launcher started: MPI, or one process alone. Collectives return
// values, sleep while they wait, watch `cancel`, and name what they wait for when they time out.
// Finalizes on finalize() only: never while an exception unwinds.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  // Every rank's bytes, by rank.
  virtual std::vector<std::string> all_gather(std::string_view mine, std::string_view what,
                                              const Cancel& cancel) = 0;
  virtual std::string broadcast(std::string_view mine, int root, std::string_view what,
                                const Cancel& cancel) = 0;
  // out[i] goes to rank i; returns what each rank sent here.
  virtual std::vector<std::string> all_to_all(const std::vector<std::string>& out,
                                              std::string_view what, const Cancel& cancel) = 0;
  virtual void barrier(std::string_view what, const Cancel& cancel) = 0;
  virtual void finalize() = 0;
  // Ends the launcher's job with `status` after a failure before the job channel exists.
  virtual void abort(int status) noexcept = 0;
};

std::unique_ptr<Group> make_single_group();
// MPI_Init with a watchdog of `timeout`; throws Error(kLauncher) when the launcher started N > 1
// tasks and MPI sees a world of 1.
std::unique_ptr<Group> make_mpi_group(const Launcher& launcher, std::chrono::seconds timeout);

}  // namespace preload
