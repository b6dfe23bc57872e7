// SPDX-License-Identifier: Apache-2.0
#include "run/rate_window.hpp"

namespace preload::run {
namespace {

constexpr auto kWindow = std::chrono::seconds(10);
constexpr auto kLeast = std::chrono::seconds(1);  // shorter, a single chunk would make the rate

}  // namespace

void RateWindow::add(Clock::time_point now, std::uint64_t bytes) {
  if (!samples_.empty() && (bytes < samples_.back().bytes || bytes == 0)) samples_.clear();
  samples_.push_back({now, bytes});
  while (samples_.size() > 2 && now - samples_[1].time >= kWindow) samples_.pop_front();
}

std::optional<std::uint64_t> RateWindow::bytes_per_s() const {
  if (samples_.size() < 2) return std::nullopt;
  const auto span = samples_.back().time - samples_.front().time;
  if (span < kLeast) return std::nullopt;
  const double seconds = std::chrono::duration<double>(span).count();
  const std::uint64_t bytes = samples_.back().bytes - samples_.front().bytes;
  return static_cast<std::uint64_t>(static_cast<double>(bytes) / seconds);
}

std::optional<double> seconds_left(std::uint64_t bytes, std::uint64_t total_bytes,
                                   std::optional<std::uint64_t> bytes_per_s) noexcept {
  if (total_bytes == 0) return std::nullopt;
  if (bytes >= total_bytes) return 0;
  if (bytes_per_s.value_or(0) == 0) return std::nullopt;
  return static_cast<double>(total_bytes - bytes) / static_cast<double>(*bytes_per_s);
}

}  // namespace preload::run
