// SPDX-License-Identifier: Apache-2.0
#include "wire/progress.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "wire/progress_json.hpp"

namespace preload::wire {

using nlohmann::json;

namespace {

template <class Value>
json optional_json(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

double share_of(std::uint64_t bytes, std::uint64_t total_bytes) noexcept {
  if (total_bytes == 0) return 0;
  return std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total_bytes));
}

constexpr double kMinutesFrom = 600;  // seconds

}  // namespace

double Progress::share() const noexcept { return share_of(bytes, total_bytes); }

std::string describe(std::uint64_t bytes, std::uint64_t total_bytes,
                     std::optional<std::uint64_t> bytes_per_s) {
  return fmt::format("{} of {} ({:.0f} %){}", format_bytes(bytes), format_bytes(total_bytes),
                     100 * share_of(bytes, total_bytes),
                     bytes_per_s ? fmt::format(", {}/s", format_bytes(*bytes_per_s)) : "");
}

std::string describe_time_left(double seconds) {
  return seconds < kMinutesFrom ? fmt::format("{:.0f} s left", seconds)
                                : fmt::format("{:.0f} min left", seconds / 60);
}

std::string describe(const Progress& progress) {
  if (!progress.phase.empty()) {
    return fmt::format("{} loaded, {}", format_bytes(progress.total_bytes), progress.phase);
  }
  std::string text = describe(progress.bytes, progress.total_bytes, progress.bytes_per_s);
  if (progress.slowest_rank) text += fmt::format(", slowest is rank {}", *progress.slowest_rank);
  if (progress.seconds_left) text += ", " + describe_time_left(*progress.seconds_left);
  return text;
}

std::string describe(const StalledRead& read) {
  return fmt::format("the read of {} at offset {} of '{}' has not ended after {:.0f} s",
                     format_bytes(read.bytes), read.offset, read.file, read.seconds);
}

json progress_json(const Progress& progress) {
  json out{{"phase", progress.phase.empty() ? json(nullptr) : json(progress.phase)},
           {"bytes", progress.bytes},
           {"total_bytes", progress.total_bytes},
           {"bytes_per_s", optional_json(progress.bytes_per_s)},
           {"seconds_left", optional_json(progress.seconds_left)},
           {"slowest_rank", optional_json(progress.slowest_rank)},
           {"stalled", nullptr}};
  if (const auto& read = progress.stalled) {
    out["stalled"] = {{"file", read->file},
                      {"offset", read->offset},
                      {"bytes", read->bytes},
                      {"seconds", read->seconds}};
  }
  return out;
}

Progress progress_member(const JsonObject& object, const char* name, std::string what) {
  const JsonObject member(object.at(name), what);
  Progress progress;
  if (member.find("phase")) progress.phase = member.text("phase");
  progress.bytes = member.unsigned_number("bytes");
  progress.total_bytes = member.unsigned_number("total_bytes");
  if (member.find("bytes_per_s")) progress.bytes_per_s = member.unsigned_number("bytes_per_s");
  if (member.find("seconds_left")) progress.seconds_left = member.number("seconds_left");
  if (member.find("slowest_rank")) progress.slowest_rank = member.small_number("slowest_rank");
  if (const json* read = member.find("stalled")) {
    const JsonObject stalled(*read, what + ": stalled");
    progress.stalled = StalledRead{stalled.text("file"), stalled.unsigned_number("offset"),
                                   stalled.unsigned_number("bytes"), stalled.number("seconds")};
  }
  return progress;
}

}  // namespace preload::wire
