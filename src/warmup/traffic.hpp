// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/model_spec.hpp"
#include "warmup/engine_groups.hpp"

namespace preload::warmup {

// What a model sends through a communicator. NCCL lets a tuner choose for the first five; the last
// two are warmed and measured.
enum class Operation : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kSendReceive,
};
std::string_view operation_name(Operation operation) noexcept;  // "all_reduce"
bool is_tunable(Operation operation) noexcept;

// What decides how large a model's messages are.
struct MessageSizes {
  std::uint64_t hidden = 0;
  std::uint64_t vocab = 0;
  std::uint64_t experts_per_token = 0;  // 0: no experts
  std::uint64_t element_bytes = 2;      // of activations
  std::uint64_t most_tokens = 8192;     // of a step
  std::uint64_t most_bytes = 0;         // of a message; larger ones are left out
  friend bool operator==(const MessageSizes&, const MessageSizes&) = default;
};
MessageSizes message_sizes(const ModelSpec& spec, std::uint64_t element_bytes,
                           std::uint64_t most_tokens);

// 1, 2, 4, … up to `most`, which is the last.
std::vector<std::uint64_t> token_buckets(std::uint64_t most);

// A message in bytes as NCCL's tuner counts them: the gathered whole of an all-gather, what a rank
// puts into a reduce-scatter or an all-to-all, the message of the rest. A multiple of the ranks'
// number times 16.
struct Message {
  std::uint64_t bytes = 0;
  bool captured = false;  // also out of CUDA graphs, which to NCCL is another case
  friend bool operator==(const Message&, const Message&) = default;
};
struct Traffic {
  Operation operation = Operation::kAllReduce;
  std::vector<Message> messages;  // ascending
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
// What the model sends through a group, the operation that matters most first.
std::vector<Traffic> group_traffic(const EngineGroup& group, const MessageSizes& sizes);

// Sizes from `bytes` up to this one behave alike: no second one of them is measured.
std::uint64_t alike_up_to(std::uint64_t bytes) noexcept;

// Two buffers of so many bytes hold any of these messages.
std::uint64_t largest_message(const std::vector<Traffic>& traffic) noexcept;

}  // namespace preload::warmup
