// SPDX-License-Identifier: Apache-2.0
#include "load/stalled_reads.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/counted.hpp"

namespace preload {

namespace {

double seconds(StalledReads::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Reads stall together when a server does: the longest speaks for all.
std::string describe(const std::vector<wire::StalledRead>& reads, std::string_view what) {
  const wire::StalledRead& longest =
      *std::ranges::max_element(reads, {}, &wire::StalledRead::seconds);
  const std::string others =
      reads.size() == 1 ? ""
                        : fmt::format(" ({} likewise)", counted(reads.size() - 1, "more read"));
  return fmt::format("'{}': the read of {} at offset {} {} {:.0f} s{}", longest.file,
                     format_bytes(longest.bytes), longest.offset, what, longest.seconds, others);
}

}  // namespace

StalledReads::StalledReads(const ReadWatch& watch, std::chrono::milliseconds limit)
    : watch_(watch), limit_(limit) {}

std::vector<std::string> StalledReads::look(Clock::time_point now) {
  std::vector<wire::StalledRead> due, ended;
  for (std::size_t slot = 0; slot < seen_.size(); ++slot) {
    Seen& seen = seen_[slot];
    const std::optional<ReadWatch::Read> read = watch_.look(slot);
    if (seen.stalled && (!read || read->turn != seen.turn)) {
      seen.stalled->seconds = seconds(now - seen.since);
      ended.push_back(*seen.stalled);
    }
    if (read) {
      follow(seen, *read, now, due);
    } else {
      seen = {};
    }
  }
  std::vector<std::string> lines;
  if (!due.empty()) lines.push_back(describe(due, "has not ended after"));
  if (!ended.empty()) lines.push_back(describe(ended, "ended after"));
  return lines;
}

void StalledReads::follow(Seen& seen, const ReadWatch::Read& read, Clock::time_point now,
                          std::vector<wire::StalledRead>& due) {
  if (read.turn != seen.turn) seen = {read.turn, now, limit_, std::nullopt};
  const Clock::duration elapsed = now - seen.since;
  if (elapsed < limit_) return;
  if (!seen.stalled) {
    seen.stalled = wire::StalledRead{watch_.path(read.file), read.offset, read.bytes, 0};
  }
  seen.stalled->seconds = seconds(elapsed);
  if (elapsed < seen.report_after) return;
  due.push_back(*seen.stalled);
  while (seen.report_after <= elapsed) seen.report_after *= 2;
}

std::optional<wire::StalledRead> StalledReads::longest() const {
  std::optional<wire::StalledRead> longest;
  for (const Seen& seen : seen_) {
    if (seen.stalled && (!longest || seen.stalled->seconds > longest->seconds)) {
      longest = seen.stalled;
    }
  }
  return longest;
}

}  // namespace preload
