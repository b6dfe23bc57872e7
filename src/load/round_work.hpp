// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "load/load_job.hpp"
#include "load/rounds.hpp"
#include "load/run_threads.hpp"

namespace preload {

// The rounds of one rank, both ways, and the memory that they need; private to load/.
struct RoundWork {
  explicit RoundWork(const LoadJob& job)
      : out(job.work.reads, job.work.messages->round_bytes,
            [&](std::uint32_t rank) { return job.by_message(rank); }) {
    count = out.parcels.size();
    for (const ReadPlan& plan : job.work.messages->incoming) {
      in.emplace_back(plan, job.work.messages->round_bytes);
      count = std::max(count, in.back().rounds.size());
    }
    for (std::size_t round = 0; round < count; ++round) {
      std::uint64_t bytes = 0;
      for_each_incoming(round, [&](const IncomingRounds&, const IncomingRounds::Round& message) {
        bytes += message.bytes;
      });
      most_incoming_bytes = std::max(most_incoming_bytes, bytes);
    }
  }

  // The messages of a round that hold something.
  template <class Visit>
  void for_each_incoming(std::size_t round, const Visit& visit) const {
    for (const IncomingRounds& giver : in) {
      if (round < giver.rounds.size() && giver.rounds[round].bytes > 0) {
        visit(giver, giver.rounds[round]);
      }
    }
  }

  // visit(segment, its bytes) for all that a round brought to `incoming`.
  template <class Visit>
  void for_each_segment(std::size_t round, const std::byte* incoming, const Visit& visit) const {
    for_each_incoming(round, [&](const IncomingRounds&, const IncomingRounds::Round& received) {
      for (const Segment& segment : received.segments) visit(segment, incoming + segment.offset);
      incoming += received.bytes;
    });
  }

  // Sends what lies packed at `outgoing` and receives to `incoming`, giver after giver.
  void exchange(RankExchange& exchange, std::size_t round, std::byte* outgoing, std::byte* incoming,
                void* stream, const std::atomic<bool>& stop) const {
    std::vector<RankExchange::Message> sent;
    if (round < out.parcels.size()) {
      for (const Parcel& parcel : out.parcels[round]) {
        for (const std::uint32_t rank : parcel.ranks) {
          sent.push_back({rank, outgoing + parcel.offset, parcel.bytes});
        }
      }
    }
    std::vector<RankExchange::Message> received;
    for_each_incoming(round,
                      [&](const IncomingRounds& giver, const IncomingRounds::Round& message) {
                        received.push_back({giver.giver, incoming, message.bytes});
                        incoming += message.bytes;
                      });
    if (!sent.empty() || !received.empty()) exchange.exchange(sent, received, stream, stop);
  }

  OutgoingRounds out;
  std::vector<IncomingRounds> in;
  std::size_t count = 0;  // of rounds that this rank has a part in
  std::uint64_t most_incoming_bytes = 0;
};

// Runs `read(stop)` on as many threads as there are slots for, ahead of `exchange(stop)` on this
// one.
template <class Read, class Exchange>
void run_rounds(LoadJob& job, const RoundWork& rounds, std::size_t slots, const Read& read,
                const Exchange& exchange) {
  const ReadTuning& tuning = job.tunings.front();
  job.chosen.tuning = {tuning.method, std::min(tuning.threads, static_cast<int>(slots))};
  job.files.use(tuning.method);
  job.phase_end = rounds.out.list.chunks.size();
  job.first_read = std::chrono::steady_clock::now();
  run_threads(
      job.phase_end == 0 ? 0 : job.chosen.tuning.threads,
      [&](int, const std::atomic<bool>& stop) { read(stop); }, exchange);
}

}  // namespace preload
