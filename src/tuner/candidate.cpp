// SPDX-License-Identifier: Apache-2.0
#include "tuner/candidate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

namespace preload::tuner {
namespace {

constexpr std::array<std::string_view, kCollectives> kCollectiveNames{
    "broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
constexpr std::array<std::string_view, kAlgorithms> kAlgorithmNames{
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
constexpr std::array<std::string_view, kProtocols> kProtocolNames{"ll", "ll128", "simple"};

template <class Value, std::size_t kCount>
std::optional<Value> find(const std::array<std::string_view, kCount>& names,
                          std::string_view name) noexcept {
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<Value>(std::distance(names.begin(), at));
}

}  // namespace

std::string_view name(Collective collective) noexcept {
  return kCollectiveNames[static_cast<std::size_t>(collective)];
}
std::string_view name(Algorithm algorithm) noexcept {
  return kAlgorithmNames[static_cast<std::size_t>(algorithm)];
}
std::string_view name(Protocol protocol) noexcept {
  return kProtocolNames[static_cast<std::size_t>(protocol)];
}

std::optional<Collective> collective_from(std::string_view name) noexcept {
  return find<Collective>(kCollectiveNames, name);
}
std::optional<Algorithm> algorithm_from(std::string_view name) noexcept {
  return find<Algorithm>(kAlgorithmNames, name);
}
std::optional<Protocol> protocol_from(std::string_view name) noexcept {
  return find<Protocol>(kProtocolNames, name);
}

bool channels_may_be_set(Candidate candidate, int nodes) noexcept {
  switch (candidate.algorithm) {
    case Algorithm::kCollnetDirect:
    case Algorithm::kCollnetChain:
      return false;
    case Algorithm::kNvls:
      return nodes == 1;
    case Algorithm::kTree:
    case Algorithm::kRing:
    case Algorithm::kNvlsTree:
    case Algorithm::kPat:
      break;
  }
  return true;
}

}  // namespace preload::tuner
