// SPDX-License-Identifier: Apache-2.0
#include "warmup/traffic.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace preload::warmup {
namespace {

constexpr std::uint64_t kAlignment = 16;    // of one rank's part
constexpr std::uint64_t kMostLogits = 256;  // sequences of a step whose logits are gathered
// vLLM captures steps of up to so many tokens into CUDA graphs.
constexpr std::uint64_t kMostCaptured = 512;
// Operations beside a model's layers: a few sizes are enough to know them.
constexpr std::uint64_t kRareStep = 16;
void keep_apart(std::vector<Message>& messages) {
  std::ranges::sort(messages, {}, &Message::bytes);
  std::vector<Message> kept;
  for (const Message& each : messages) {
    if (kept.empty() || each.bytes > alike_up_to(kept.back().bytes)) {
      kept.push_back(each);
    } else {
      kept.back().captured |= each.captured;
    }
  }
  messages = std::move(kept);
}

class Messages {
 public:
  Messages(std::uint64_t ranks, const MessageSizes& sizes)
      : step_(ranks * kAlignment), most_(sizes.most_bytes) {}

  void add(Operation operation, std::uint64_t bytes, bool captured) {
    const std::uint64_t whole = (bytes + step_ - 1) / step_ * step_;
    if (bytes > 0 && whole <= most_) messages_[operation].push_back({whole, captured});
  }

  std::vector<Traffic> take() {
    std::vector<Traffic> traffic;
    for (auto& [operation, messages] : messages_) {
      keep_apart(messages);
      traffic.push_back({operation, std::move(messages)});
    }
    return traffic;
  }

 private:
  const std::uint64_t step_;
  const std::uint64_t most_;
  std::map<Operation, std::vector<Message>> messages_;
};

}  // namespace

std::string_view operation_name(Operation operation) noexcept {
  switch (operation) {
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kReduce:
      return "reduce";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kSendReceive:
      break;
  }
  return "send_receive";
}

bool is_tunable(Operation operation) noexcept {
  return operation != Operation::kAllToAll && operation != Operation::kSendReceive;
}

MessageSizes message_sizes(const ModelSpec& spec, std::uint64_t element_bytes,
                           std::uint64_t most_tokens) {
  MessageSizes sizes;
  sizes.hidden = static_cast<std::uint64_t>(spec.hidden_size);
  sizes.vocab = static_cast<std::uint64_t>(spec.vocab_size);
  if (spec.num_experts > 0) {
    // Families disagree about the name, and some leave it to their code.
    for (const char* name : {"num_experts_per_tok", "moe_topk", "top_k_experts"}) {
      if (!spec.config.has(name)) continue;
      sizes.experts_per_token = static_cast<std::uint64_t>(spec.config.number(name));
      break;
    }
    sizes.experts_per_token = std::max<std::uint64_t>(1, sizes.experts_per_token);
  }
  sizes.element_bytes = element_bytes;
  sizes.most_tokens = most_tokens;
  return sizes;
}

std::vector<std::uint64_t> token_buckets(std::uint64_t most) {
  std::vector<std::uint64_t> buckets;
  for (std::uint64_t tokens = 1; tokens < most; tokens *= 2) buckets.push_back(tokens);
  buckets.push_back(most);
  return buckets;
}

std::vector<Traffic> group_traffic(const EngineGroup& group, const MessageSizes& sizes) {
  const std::uint64_t ranks = group.ranks.size();
  Messages out(ranks, sizes);
  const auto has = [&](GroupKind kind) { return std::ranges::count(group.kinds, kind) > 0; };
  const std::uint64_t row = sizes.hidden * sizes.element_bytes;
  const std::uint64_t logits = sizes.vocab * sizes.element_bytes;
  std::uint64_t rare = 1;
  for (const std::uint64_t tokens : token_buckets(sizes.most_tokens)) {
    const bool captured = tokens <= kMostCaptured;
    if (has(GroupKind::kTensor)) {
      // Behind each row-parallel layer; logits; the same layers under sequence parallelism.
      out.add(Operation::kAllReduce, tokens * row, captured);
      if (tokens <= kMostLogits) out.add(Operation::kAllGather, tokens * logits, false);
      if (tokens >= ranks) {
        out.add(Operation::kAllGather, tokens * row, captured);
        out.add(Operation::kReduceScatter, tokens * row, captured);
      }
      if (tokens == rare || tokens == sizes.most_tokens) {
        out.add(Operation::kBroadcast, tokens * row, false);
        out.add(Operation::kReduce, tokens * row, false);
        rare *= kRareStep;
      }
    }
    if (sizes.experts_per_token > 0 && (has(GroupKind::kExpert) || has(GroupKind::kData))) {
      // Every rank's tokens to every rank and back, by whichever way the engine's backend takes.
      out.add(Operation::kAllGather, tokens * ranks * row, captured);
      out.add(Operation::kReduceScatter, tokens * ranks * row, captured);
      if (has(GroupKind::kExpert)) {
        out.add(Operation::kAllToAll, tokens * sizes.experts_per_token * row, false);
      }
    }
    if (has(GroupKind::kPipeline)) out.add(Operation::kSendReceive, tokens * row, false);
  }
  // Replicas, and the job, agree on little things alone.
  if (has(GroupKind::kData) || has(GroupKind::kWorld)) {
    out.add(Operation::kAllReduce, row, false);
  }
  return out.take();
}

std::uint64_t alike_up_to(std::uint64_t bytes) noexcept { return bytes + bytes / 4; }

std::uint64_t largest_message(const std::vector<Traffic>& traffic) noexcept {
  std::uint64_t largest = 0;
  for (const Traffic& each : traffic) {
    if (!each.messages.empty()) largest = std::max(largest, each.messages.back().bytes);
  }
  return largest;
}

}  // namespace preload::warmup
