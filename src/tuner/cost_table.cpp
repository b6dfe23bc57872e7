// SPDX-License-Identifier: Apache-2.0
#include "tuner/cost_table.hpp"

#include <limits>

namespace preload::tuner {

template <class Function>
void CostTable::for_each_offered(Function&& function) const {
  for (int algorithm = 0; algorithm < algorithms_; ++algorithm) {
    for (int protocol = 0; protocol < protocols_; ++protocol) {
      if (float& cost = at(algorithm, protocol); cost >= 0.0F) function(algorithm, protocol, cost);
    }
  }
}

float CostTable::cost(Candidate candidate) const noexcept {
  const int algorithm = static_cast<int>(candidate.algorithm);
  const int protocol = static_cast<int>(candidate.protocol);
  return algorithm < algorithms_ && protocol < protocols_ ? at(algorithm, protocol) : -1.0F;
}

std::vector<Candidate> CostTable::offered() const {
  std::vector<Candidate> all;
  for_each_offered([&](int algorithm, int protocol, float) {
    if (algorithm < kAlgorithms && protocol < kProtocols) {
      all.push_back({static_cast<Algorithm>(algorithm), static_cast<Protocol>(protocol)});
    }
  });
  return all;
}

int CostTable::unknown_candidates() const noexcept {
  int count = 0;
  for_each_offered([&](int algorithm, int protocol, float) {
    if (algorithm >= kAlgorithms || protocol >= kProtocols) ++count;
  });
  return count;
}

CostTable::Cheapest CostTable::cheapest() const noexcept {
  Cheapest best;
  for_each_offered([&](int algorithm, int protocol, float cost) {
    if (best.algorithm < 0 || cost < best.cost) best = {algorithm, protocol, cost};
  });
  return best;
}

bool CostTable::relegated(Candidate candidate) const noexcept {
  // Far more than lies between candidates of one type, and well below that factor.
  constexpr float kFactor = 256.0F;
  const float least = cheapest().cost;
  return least > 0.0F && cost(candidate) > kFactor * least;
}

void CostTable::prefer(Candidate candidate) noexcept {
  // NCCL takes the first of equals: what costs nothing already has to cost something.
  for_each_offered([](int, int, float& cost) {
    if (cost == 0.0F) cost = std::numeric_limits<float>::min();
  });
  at(static_cast<int>(candidate.algorithm), static_cast<int>(candidate.protocol)) = 0.0F;
}

}  // namespace preload::tuner
