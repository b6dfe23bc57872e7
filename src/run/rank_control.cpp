// SPDX-License-Identifier: Apache-2.0
#include "run/rank_control.hpp"

#include <fmt/format.h>

#include <utility>

namespace preload::run {

RankControl::RankControl(std::chrono::seconds grace) : grace_(grace) {}

void RankControl::end(ServeEnd end) {
  const std::lock_guard lock(mutex_);
  if (decided_) return;
  decided_ = end;
  end_hard_after(grace_);
  for (Server* server : servers_) server->end(end);
  cancel_.request({end.status, end.text});
}

void RankControl::end_hard_after(std::chrono::seconds limit) {
  const int status = decided_->status != 0 ? decided_->status : 1;
  hard_end_ = std::make_unique<Watchdog>(
      limit, status,
      fmt::format("did not end within {} s after: {}", limit.count(), decided_->text));
}

void RankControl::allow(std::chrono::seconds more) {
  const std::lock_guard lock(mutex_);
  if (decided_) end_hard_after(grace_ + more);
}

void RankControl::fail(const JobFailure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
  }
  end({ServeEnd::Cause::kFailure, failure.status, describe(failure)});
}

std::optional<JobFailure> RankControl::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void RankControl::ready() {
  const std::lock_guard lock(mutex_);
  if (servers_.empty() || decided_) return;
  for (Server* server : servers_) server->admit();
}

void RankControl::forget(const Server& server) {
  const std::lock_guard lock(mutex_);
  std::erase(servers_, &server);
}

std::optional<ServeEnd> RankControl::decided() const {
  const std::lock_guard lock(mutex_);
  return decided_;
}

RankControl::Serving::Serving(RankControl& control, std::vector<Server*> servers)
    : control_(control) {
  const std::lock_guard lock(control_.mutex_);
  control_.servers_ = std::move(servers);
  if (!control_.decided_) return;
  for (Server* server : control_.servers_) server->end(*control_.decided_);
}

RankControl::Serving::~Serving() {
  const std::lock_guard lock(control_.mutex_);
  control_.servers_.clear();
}

}  // namespace preload::run
