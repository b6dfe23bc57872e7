// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "preload/nccl_tuner.h"
#include "tuner/cost_table.hpp"
#include "tuner/nccl_host.hpp"
#include "tuner/tuning_table.hpp"

namespace preload::tuner {

// What NCCL asks a tuner.
struct Question {
  Collective collective = Collective::kAllReduce;
  std::uint64_t bytes = 0;
  int pipelined_ops = 1;
  bool registered_buffers = false;
};

struct Choice {
  Candidate candidate;
  int channels = 0;  // 0: as many as NCCL chooses
};

// One communicator that NCCL holds: what it is answered, and what it was answered last. Questions
// and control come on different threads.
class Communicator {
 public:
  // `entries`: those for its shape, in order.
  Communicator(const preload_nccl_tuner_communicator& facts, std::vector<Entry> entries,
               NcclLog log);

  const preload_nccl_tuner_communicator& facts() const noexcept { return facts_; }

  // Changes `costs` so that NCCL takes what is wanted, or leaves them. Returns the channels to ask
  // for, 0 for NCCL's own number.
  int answer(const Question& question, CostTable costs);

  void force(Collective collective, Choice choice);
  void leave(Collective collective);
  void use_table(Collective collective);
  std::optional<preload_nccl_tuner_call> last_call(Collective collective) const;

 private:
  struct Rule {
    enum class Kind { kTable, kLeave, kForce } kind = Kind::kTable;
    Choice forced;
  };
  // An entry, and whether the log has had its first use and its first refusal.
  struct Row {
    Entry entry;
    bool used_logged = false;
    bool left_logged = false;
  };

  void set(Collective collective, const Rule& rule);
  Row* find(const Question& question);
  std::optional<Choice> from_table(const Question& question, const CostTable& costs);

  const preload_nccl_tuner_communicator facts_;
  const NcclLog log_;
  mutable std::mutex mutex_;
  std::array<std::vector<Row>, kCollectives> rows_;
  std::array<Rule, kCollectives> rules_;
  std::array<preload_nccl_tuner_call, kCollectives> calls_{};
};

}  // namespace preload::tuner
