// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_exchange.hpp"

#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>

namespace preload::warmup {
namespace {

using Json = nlohmann::json;

// No collective takes nearly that long, and a rank that fails meanwhile says so by the job channel.
constexpr std::chrono::minutes kSlowestRank{10};

Json offer_json(const Offer& offer) {
  Json offered = Json::array();
  for (const tuner::Candidate& each : offer.offered) {
    offered.push_back({static_cast<int>(each.algorithm), static_cast<int>(each.protocol)});
  }
  Json own;
  if (offer.own) {
    own = {static_cast<int>(offer.own->algorithm), static_cast<int>(offer.own->protocol)};
  }
  return {{"offered", std::move(offered)},
          {"own", std::move(own)},
          {"registered", offer.registered_buffers},
          {"ops", offer.pipelined_ops}};
}

tuner::Candidate candidate_of(const Json& pair) {
  return {static_cast<tuner::Algorithm>(pair.at(0).get<int>()),
          static_cast<tuner::Protocol>(pair.at(1).get<int>())};
}

Offer offer_of(const Json& json) {
  Offer offer;
  for (const Json& each : json.at("offered")) offer.offered.push_back(candidate_of(each));
  if (!json.at("own").is_null()) offer.own = candidate_of(json.at("own"));
  offer.registered_buffers = json.at("registered").get<bool>();
  offer.pipelined_ops = json.at("ops").get<int>();
  return offer;
}

// JSON has no number for what is none.
double seconds_of(const Json& number) {
  return number.is_number() ? number.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

std::vector<std::string> SweepExchange::gather(const std::string& mine) {
  const Json message{{"seconds", clock_()}, {"what", mine}};
  std::vector<std::string> whats;
  for (const std::string& text :
       group_.all_gather(message.dump(), {"every rank's timings", cancel_, kSlowestRank})) {
    const Json each = Json::parse(text);
    if (whats.empty()) seconds_ = seconds_of(each.at("seconds"));
    whats.push_back(each.at("what").get<std::string>());
  }
  return whats;
}

void SweepExchange::agree_on_time() { gather({}); }

std::vector<Offer> SweepExchange::offers(const Offer& mine, const std::vector<int>& ranks) {
  const std::vector<std::string> all = gather(offer_json(mine).dump());
  std::vector<Offer> offers;
  for (const int rank : ranks) {
    offers.push_back(offer_of(Json::parse(all.at(static_cast<std::size_t>(rank)))));
  }
  return offers;
}

std::vector<RankTimes> SweepExchange::times(const std::vector<std::vector<double>>& mine,
                                            const std::vector<int>& ranks, std::size_t choices) {
  const std::vector<std::string> all = gather(Json(mine).dump());
  std::vector<RankTimes> times(choices);
  for (const int rank : ranks) {
    const Json of_rank = Json::parse(all.at(static_cast<std::size_t>(rank)));
    for (std::size_t choice = 0; choice < choices; ++choice) {
      std::vector<double>& rounds = times[choice].emplace_back();
      for (const Json& each : of_rank.at(choice)) rounds.push_back(seconds_of(each));
    }
  }
  return times;
}

}  // namespace preload::warmup
