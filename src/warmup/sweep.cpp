// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "warmup/decision.hpp"
#include "warmup/sweep_exchange.hpp"
#include "warmup/sweep_plan.hpp"

namespace preload::warmup {
namespace {

constexpr int kRounds = 5;
constexpr int kConfirmingRounds = 8;
// What is so much slower than the fastest after one round is not measured again.
constexpr double kHopeless = 1.5;
// A round of one candidate takes about so long, within these repetitions.
constexpr double kRoundSeconds = 1e-3;
constexpr int kMostRepetitions = 20;

int repetitions_for(double seconds) noexcept {
  if (!std::isfinite(seconds) || seconds <= 0) return 1;
  const double wanted = std::ceil(kRoundSeconds / seconds);
  return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostRepetitions)));
}

// One point, measured by the ranks whose group has its shape; the others hear of it.
class PointSweep {
 public:
  PointSweep(SweepExchange& exchange, CollectiveTimer& timer, const SweepPoint& point,
             std::vector<int> ranks, double budget_s)
      : exchange_(exchange), timer_(timer), ranks_(std::move(ranks)), budget_s_(budget_s) {
    result_.point = point;
  }

  // Nothing where NCCL asks its tuner what was measured already: `asked` says what.
  std::optional<PointResult> run(const std::function<bool(const Offer&)>& asked) {
    offer();
    if (is_tunable(result_.point.operation) && !asked(result_.offer)) return std::nullopt;
    result_.repetitions = 1;
    const double once = slowest_median(rounds({Choice{}}, 1).front());
    result_.repetitions = repetitions_for(once);
    if (is_late()) {
      result_.measured = {{Choice{}, once}};
      return std::move(result_);
    }
    if (!result_.offer.own) {
      result_.measured = {{Choice{}, slowest_median(rounds({Choice{}}, kRounds).front())}};
      return std::move(result_);
    }
    measure(choices_to_try(result_.offer));
    if (is_late()) return std::move(result_);
    const tuner::Candidate fastest =
        result_.measured[fastest_of(result_.measured)].choice.candidate.value_or(
            *result_.offer.own);
    measure(channels_to_try(fastest, result_.point.shape));
    if (!is_late()) decide();
    return std::move(result_);
  }

 private:
  // A large message over a slow network may take longer than all that is left: then NCCL's own way
  // stays.
  bool is_late() const { return exchange_.seconds() >= budget_s_; }

  static std::size_t fastest_of(const std::vector<Measured>& measured) {
    return static_cast<std::size_t>(std::ranges::min_element(measured, {}, &Measured::seconds) -
                                    measured.begin());
  }

  bool takes_part() const { return std::ranges::binary_search(ranks_, exchange_.rank()); }

  void offer() {
    const Offer mine = takes_part() ? timer_.offer(result_.point) : Offer{};
    const std::vector<Offer> offers = exchange_.offers(mine, ranks_);
    const bool agree =
        std::ranges::all_of(offers, [&](const Offer& each) { return each == offers.front(); });
    if (agree) {
      result_.offer = offers.front();
    } else if (exchange_.rank() == 0) {
      log::warn(fmt::format(
          "NCCL offers its ranks different choices for {} of {}: it is left alone there",
          operation_name(result_.point.operation), format_bytes(result_.point.bytes)));
    }
  }

  // Every choice in turn, round by round; by choice.
  std::vector<RankTimes> rounds(const std::vector<Choice>& choices, int count) {
    std::vector<std::vector<double>> mine;
    if (takes_part()) {
      mine.resize(choices.size());
      for (int round = 0; round < count; ++round) {
        for (std::size_t i = 0; i < choices.size(); ++i) {
          mine[i].push_back(timer_.run(result_.point, choices[i], result_.repetitions));
        }
      }
    }
    return exchange_.times(mine, ranks_, choices.size());
  }

  // Adds choices to what was measured, each beside NCCL's own anew.
  void measure(std::vector<Choice> choices) {
    if (choices.empty() && !result_.measured.empty()) return;
    choices.insert(choices.begin(), Choice{});
    const std::vector<RankTimes> first = rounds(choices, 1);
    std::vector<double> seconds;
    for (const RankTimes& times : first) seconds.push_back(slowest_median(times));
    const double limit = kHopeless * *std::ranges::min_element(seconds);
    std::vector<Choice> hopeful;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (i == 0 || seconds[i] <= limit) hopeful.push_back(choices[i]);
    }
    const std::vector<RankTimes> again = rounds(hopeful, kRounds);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const auto at = std::ranges::find(hopeful, choices[i]);
      if (at != hopeful.end()) {
        seconds[i] = slowest_median(again[static_cast<std::size_t>(at - hopeful.begin())]);
      }
      if (i > 0 || result_.measured.empty()) result_.measured.push_back({choices[i], seconds[i]});
    }
    // Of two measurements of the same the faster one was disturbed less.
    Measured& own = result_.measured.front();
    own.seconds = std::min(own.seconds, seconds.front());
  }

  void decide() {
    std::vector<double> seconds;
    for (const Measured& each : result_.measured) seconds.push_back(each.seconds);
    const std::size_t best = with_own_channels(choose(seconds));
    if (best == 0) return;
    const std::vector<RankTimes> both =
        rounds({Choice{}, result_.measured[best].choice}, kConfirmingRounds);
    const Confirmation again = confirm(both[0], both[1]);
    if (!again.holds) return;
    result_.chosen = best;
    result_.default_seconds = again.default_seconds;
    result_.chosen_seconds = again.seconds;
  }

  // NCCL's own number of channels where another gains no margin over it: sizes that agree on a
  // choice make one range.
  std::size_t with_own_channels(std::size_t best) const {
    const std::vector<Measured>& measured = result_.measured;
    if (best == 0) return best;
    const Choice own{measured[best].choice.candidate, 0};
    const auto plain = std::ranges::find(measured, own, &Measured::choice);
    if (plain == measured.end()) return best;
    if (choose(std::vector{measured.front().seconds, plain->seconds}) == 0) return best;
    const std::vector<double> both = {plain->seconds, measured[best].seconds};
    return choose(both) == 0 ? static_cast<std::size_t>(plain - measured.begin()) : best;
  }

  SweepExchange& exchange_;
  CollectiveTimer& timer_;
  const std::vector<int> ranks_;
  const double budget_s_;
  PointResult result_;
};

std::vector<int> ranks_with(const std::vector<std::vector<tuner::Shape>>& shapes,
                            const SweepPoint& point) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    if (shapes[rank].at(point.group) == point.shape) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

SweepResult sweep(Group& group, CollectiveTimer& timer, const std::vector<SweepPoint>& points,
                  const std::vector<std::vector<tuner::Shape>>& shapes, const SweepOptions& options,
                  const Cancel& cancel) {
  SweepExchange exchange(group, options.clock, cancel);
  SweepResult result;
  result.planned = points.size();
  using Question = std::tuple<tuner::Shape, Operation, std::uint64_t, bool, int>;
  std::set<Question> asked;
  exchange.agree_on_time();
  for (std::size_t i = 0; i < points.size() && exchange.seconds() < options.budget_s; ++i) {
    const SweepPoint& point = points[i];
    if (options.progress) {
      options.progress(fmt::format("{} of {}: {} of {}", i + 1, points.size(),
                                   operation_name(point.operation), format_bytes(point.bytes)));
    }
    PointSweep one(exchange, timer, point, ranks_with(shapes, point), options.budget_s);
    auto measured = one.run([&](const Offer& offer) {
      if (!offer.own) return true;  // nothing that could have been measured already
      return asked
          .emplace(point.shape, point.operation, point.bytes, offer.registered_buffers,
                   offer.pipelined_ops)
          .second;
    });
    if (measured) {
      result.points.push_back(std::move(*measured));
    } else {
      --result.planned;
    }
  }
  result.seconds = exchange.seconds();
  return result;
}

}  // namespace preload::warmup
