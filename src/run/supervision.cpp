// SPDX-License-Identifier: Apache-2.0
#include "run/supervision.hpp"

#include <utility>

#include "run/agreement.hpp"
#include "run/failure_report.hpp"

namespace preload::run {

Supervision::Supervision(Group& group, JobEvents events, const Cancel& cancel,
                         const std::vector<int>& tasks)
    : rank_(group.rank()), events_(std::move(events)) {
  if (group.size() == 1) return;
  std::optional<Error> failed;
  if (rank_ == 0) {
    failed = attempt([&] {
      hub_.emplace(group.size(),
                   [tasks](const JobFailure& failure) { report_failure(failure, tasks); });
    });
  }
  agree(group, failed, {"rank 0 to open the job channel", cancel});
  const std::string address = group.broadcast(hub_ ? encode(hub_->address()) : std::string(), 0,
                                              {"the address of the job channel", cancel});
  failed = attempt([&] { member_.emplace(decode_hub_address(address), rank_, events_); });
  agree(group, failed, {"every rank to reach the job channel", cancel});
}

void Supervision::set_progress(const RankProgress& progress) noexcept {
  if (member_) member_->set_progress(progress);
}

std::vector<RankProgress> Supervision::progress() const {
  return hub_ ? hub_->progress() : std::vector<RankProgress>();
}

std::optional<int> Supervision::slowest_rank() const noexcept {
  return member_ ? member_->slowest_rank() : std::nullopt;
}

std::optional<int> Supervision::await_warm_ups(bool succeeded, const Cancel& cancel,
                                               std::chrono::milliseconds limit) {
  if (member_) return member_->await_warm_ups(succeeded, cancel, limit);
  return cancel.requested() ? std::nullopt : std::optional(succeeded ? 0 : 1);
}

void Supervision::bound() {
  if (member_) {
    member_->bound();
  } else {
    events_.ready();
  }
}

std::optional<JobFailure> Supervision::fail(int status, const std::string& text,
                                            std::optional<int> of_rank) {
  return member_ ? member_->fail(status, text, of_rank) : std::nullopt;
}

void Supervision::await_others(std::chrono::milliseconds limit) {
  if (member_) member_->await_others(limit);
}

void Supervision::request_stop() {
  if (member_) {
    member_->request_stop();
  } else {
    events_.stop();
  }
}

void Supervision::bye() {
  if (member_) member_->bye();
}

std::optional<JobFailure> Supervision::await_goodbyes(std::chrono::milliseconds limit) const {
  return hub_ ? hub_->await_goodbyes(limit) : std::nullopt;
}

}  // namespace preload::run
