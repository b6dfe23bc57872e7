// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <optional>
#include <string_view>

// What NCCL lets a tuner choose from, numbered and named as NCCL does.
namespace preload::tuner {

enum class Collective { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
enum class Algorithm { kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree, kPat };
enum class Protocol { kLl, kLl128, kSimple };

inline constexpr int kCollectives = 5;
inline constexpr int kAlgorithms = 7;
inline constexpr int kProtocols = 3;
// No NCCL has more channels.
inline constexpr int kMaxChannels = 64;

// The names of NCCL's example tuner: "allreduce", "nvls_tree", "ll128".
std::string_view name(Collective collective) noexcept;
std::string_view name(Algorithm algorithm) noexcept;
std::string_view name(Protocol protocol) noexcept;
std::optional<Collective> collective_from(std::string_view name) noexcept;
std::optional<Algorithm> algorithm_from(std::string_view name) noexcept;
std::optional<Protocol> protocol_from(std::string_view name) noexcept;

struct Candidate {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;

  auto operator<=>(const Candidate&) const = default;
};

// Whether NCCL bounds the channels that a tuner asks for. Where it does not (in-network
// reductions), a number above the communicator's own would run past its channels.
bool channels_may_be_set(Candidate candidate, int nodes) noexcept;

}  // namespace preload::tuner
