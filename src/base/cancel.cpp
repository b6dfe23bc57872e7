// SPDX-License-Identifier: Apache-2.0
#include "base/cancel.hpp"

#include <utility>

namespace preload {

void Cancel::request(Cause cause) {
  const std::lock_guard lock(mutex_);
  if (cause_) return;
  cause_ = std::move(cause);
  requested_.store(true, std::memory_order_release);
}

std::optional<Cancel::Cause> Cancel::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Cancel::check() const {
  if (requested()) throw Cancelled(*cause());
}

Cancelled::Cancelled(Cancel::Cause cause)
    : Error(Errc::kInternal, std::move(cause.text)), status_(cause.status) {}

}  // namespace preload
