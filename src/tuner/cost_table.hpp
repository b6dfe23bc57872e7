// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tuner/candidate.hpp"

namespace preload::tuner {

// A view of the costs that NCCL hands to a tuner: a row for each algorithm, a column for each
// protocol, both perhaps more than this code can name.
class CostTable {
 public:
  CostTable(float* costs, int algorithms, int protocols)
      : costs_(costs), algorithms_(algorithms), protocols_(protocols) {}

  // Negative: not offered, also for what the table is too small for.
  float cost(Candidate candidate) const noexcept;
  bool offers(Candidate candidate) const noexcept { return cost(candidate) >= 0.0F; }
  std::vector<Candidate> offered() const;  // sorted
  int unknown_candidates() const noexcept;

  struct Cheapest {
    int algorithm = -1;
    int protocol = -1;
    float cost = 0.0F;
  };
  // What NCCL takes: the first of the cheapest, in the order of the table.
  Cheapest cheapest() const noexcept;

  // NCCL multiplies the cost of what would lose precision by 1024 (a ring of more than 8 ranks that
  // reduces FP8), and tells no tuner the type. Such a candidate is not one of speed.
  bool relegated(Candidate candidate) const noexcept;

  // Makes NCCL take `candidate`, which it offers.
  void prefer(Candidate candidate) noexcept;

 private:
  float& at(int algorithm, int protocol) const noexcept {
    return costs_[static_cast<std::ptrdiff_t>(algorithm) * protocols_ + protocol];
  }
  template <class Function>
  void for_each_offered(Function&& function) const;

  float* costs_;
  int algorithms_;
  int protocols_;
};

}  // namespace preload::tuner
