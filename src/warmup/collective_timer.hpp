// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tuner/candidate.hpp"
#include "tuner/tuning_table.hpp"
#include "warmup/traffic.hpp"

namespace preload::warmup {

// One message of one of the engine's groups.
struct SweepPoint {
  std::size_t group = 0;  // by its place in engine_groups()
  tuner::Shape shape;
  Operation operation = Operation::kAllReduce;
  std::uint64_t bytes = 0;
  bool captured = false;  // out of a CUDA graph
  friend auto operator<=>(const SweepPoint&, const SweepPoint&) = default;
};

// How it is carried: by NCCL's own choice, or by another.
struct Choice {
  std::optional<tuner::Candidate> candidate;
  int channels = 0;  // 0: as many as NCCL chooses
  friend bool operator==(const Choice&, const Choice&) = default;
};

// What NCCL said when it was asked to carry a point. Nothing is offered where it asks no tuner.
struct Offer {
  std::vector<tuner::Candidate> offered;  // sorted
  std::optional<tuner::Candidate> own;    // what it would take
  bool registered_buffers = false;
  int pipelined_ops = 1;
  friend bool operator==(const Offer&, const Offer&) = default;
};

// Runs collectives and takes the time: NCCL on GPUs, or what a test puts in its place. Every rank
// of a point's group calls with the same arguments at the same time. Throws Error when a collective
// fails, Cancelled.
class CollectiveTimer {
 public:
  virtual ~CollectiveTimer() = default;
  virtual int nccl_version() const = 0;
  // Of each group, as NCCL counts ranks and nodes.
  virtual std::vector<tuner::Shape> shapes() const = 0;
  // Warms the point up, by NCCL's own choice.
  virtual Offer offer(const SweepPoint& point) = 0;
  // Seconds that one takes, over `repetitions` without a pause.
  virtual double run(const SweepPoint& point, const Choice& choice, int repetitions) = 0;
};

}  // namespace preload::warmup
