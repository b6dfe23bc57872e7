// SPDX-License-Identifier: Apache-2.0
#include "tuner/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace preload::tuner {
namespace {

static_assert(PRELOAD_NCCL_TUNER_ALGORITHMS == kAlgorithms);
static_assert(PRELOAD_NCCL_TUNER_PROTOCOLS == kProtocols);

std::size_t index_of(Collective collective) { return static_cast<std::size_t>(collective); }

std::string channels_text(int channels) {
  return channels == 0 ? std::string("NCCL's channels") : fmt::format("{} channels", channels);
}

// What was asked, before anything is changed.
void note(const Question& question, const CostTable& costs, preload_nccl_tuner_call& call) {
  ++call.number;
  call.bytes = question.bytes;
  call.collective = static_cast<std::int32_t>(question.collective);
  call.registered_buffers = question.registered_buffers ? 1 : 0;
  call.pipelined_ops = question.pipelined_ops;
  call.unknown_candidates = costs.unknown_candidates();
  for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
    for (int protocol = 0; protocol < kProtocols; ++protocol) {
      call.costs[algorithm][protocol] =
          costs.cost({static_cast<Algorithm>(algorithm), static_cast<Protocol>(protocol)});
    }
  }
  const CostTable::Cheapest own = costs.cheapest();
  call.own_algorithm = call.algorithm = own.algorithm;
  call.own_protocol = call.protocol = own.protocol;
  call.source = PRELOAD_NCCL_TUNER_FROM_NCCL;
  call.channels = 0;
}

}  // namespace

Communicator::Communicator(const preload_nccl_tuner_communicator& facts, std::vector<Entry> entries,
                           NcclLog log)
    : facts_(facts), log_(log) {
  for (Entry& entry : entries) {
    rows_[index_of(entry.collective)].push_back({.entry = std::move(entry)});
  }
}

int Communicator::answer(const Question& question, CostTable costs) {
  const std::lock_guard lock(mutex_);
  preload_nccl_tuner_call& call = calls_[index_of(question.collective)];
  note(question, costs, call);
  const Rule& rule = rules_[index_of(question.collective)];
  std::optional<Choice> choice;
  switch (rule.kind) {
    case Rule::Kind::kTable:
      choice = from_table(question, costs);
      break;
    case Rule::Kind::kForce:
      if (costs.offers(rule.forced.candidate)) choice = rule.forced;
      break;
    case Rule::Kind::kLeave:
      break;
  }
  if (!choice) return 0;
  costs.prefer(choice->candidate);
  call.source = rule.kind == Rule::Kind::kForce ? PRELOAD_NCCL_TUNER_FROM_FORCE
                                                : PRELOAD_NCCL_TUNER_FROM_TABLE;
  call.algorithm = static_cast<std::int32_t>(choice->candidate.algorithm);
  call.protocol = static_cast<std::int32_t>(choice->candidate.protocol);
  call.channels = choice->channels;
  return choice->channels;
}

Communicator::Row* Communicator::find(const Question& question) {
  std::vector<Row>& rows = rows_[index_of(question.collective)];
  const auto key = std::tuple(question.registered_buffers, question.pipelined_ops, question.bytes);
  // The first that ends at or after these bytes: ranges do not overlap.
  const auto at = std::partition_point(rows.begin(), rows.end(), [&](const Row& row) {
    const Entry& entry = row.entry;
    return std::tuple(entry.registered_buffers, entry.pipelined_ops, entry.max_bytes) < key;
  });
  if (at == rows.end()) return nullptr;
  const Entry& entry = at->entry;
  const bool covers = entry.registered_buffers == question.registered_buffers &&
                      entry.pipelined_ops == question.pipelined_ops &&
                      entry.min_bytes <= question.bytes;
  return covers ? &*at : nullptr;
}

std::optional<Choice> Communicator::from_table(const Question& question, const CostTable& costs) {
  Row* const row = find(question);
  if (row == nullptr || !row->entry.chosen) return std::nullopt;
  const Entry& entry = row->entry;
  const auto range = [&] {
    return fmt::format("preload: {} of {} to {} bytes", name(entry.collective), entry.min_bytes,
                       entry.max_bytes);
  };
  const Timing& chosen = *entry.chosen;
  const char* reason = nullptr;
  if (costs.unknown_candidates() != 0 || costs.offered() != entry.offered) {
    reason = "NCCL offers other algorithms and protocols than were measured";
  } else if (costs.relegated(chosen.candidate)) {
    reason = "NCCL avoids what was chosen, for this type's precision";
  }
  if (reason != nullptr) {
    if (!std::exchange(row->left_logged, true)) {
      log_.info(fmt::format("{}: {}; its own choice stays", range(), reason));
    }
    return std::nullopt;
  }
  if (!std::exchange(row->used_logged, true)) {
    log_.info(fmt::format("{}: {}, {} instead of {} ({:.2f} instead of {:.2f} us)", range(),
                          text_of(chosen.candidate), channels_text(chosen.channels),
                          text_of(entry.own.candidate), chosen.microseconds,
                          entry.own.microseconds));
  }
  return Choice{chosen.candidate, chosen.channels};
}

void Communicator::set(Collective collective, const Rule& rule) {
  const std::lock_guard lock(mutex_);
  rules_[index_of(collective)] = rule;
}

void Communicator::force(Collective collective, Choice choice) {
  if (!channels_may_be_set(choice.candidate, static_cast<int>(facts_.nodes))) choice.channels = 0;
  set(collective, {.kind = Rule::Kind::kForce, .forced = choice});
}

void Communicator::leave(Collective collective) {
  set(collective, {.kind = Rule::Kind::kLeave, .forced = {}});
}

void Communicator::use_table(Collective collective) { set(collective, {}); }

std::optional<preload_nccl_tuner_call> Communicator::last_call(Collective collective) const {
  const std::lock_guard lock(mutex_);
  const preload_nccl_tuner_call& call = calls_[index_of(collective)];
  if (call.number == 0) return std::nullopt;
  return call;
}

}  // namespace preload::tuner
