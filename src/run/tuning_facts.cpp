// SPDX-License-Identifier: Apache-2.0
#include "run/tuning_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "tuner/tuning_table.hpp"
#include "warmup/nccl_settings.hpp"

namespace preload::run {
namespace {

using Json = nlohmann::json;

constexpr int kFirstWithTuner = 22400;  // of the plugin interface in version 4

// Of a communicator, with all its channels connected; and what the buffers and kernels take.
constexpr std::uint64_t kPerCommunicator = 512 * kMiB;
constexpr std::uint64_t kBeside = kGiB;
constexpr std::uint64_t kMostBuffer = 256 * kMiB;
constexpr std::uint64_t kPartOfFree = 8;

// They say what is logged and who tunes, not how messages are carried.
constexpr auto kOfNoConsequence =
    std::to_array<std::string_view>({"NCCL_DEBUG", "NCCL_TUNER_", "NCCL_PROFILER_", "NCCL_CONF_"});

}  // namespace

std::string encode(const TuningFacts& facts) {
  return Json{{"nccl", facts.nccl_version},
              {"in_the_way", facts.in_the_way},
              {"gpu", facts.gpu},
              {"free", facts.free_bytes},
              {"variables", facts.variables},
              {"environment", facts.environment}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

TuningFacts decode_tuning_facts(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    return {json.at("nccl").get<int>(),
            json.at("in_the_way").get<std::string>(),
            json.at("gpu").get<std::string>(),
            json.at("free").get<std::uint64_t>(),
            json.at("variables").get<std::vector<std::string>>(),
            json.at("environment").get<artifact::Environment>()};
  } catch (const Json::exception& error) {
    throw Error(Errc::kInternal,
                fmt::format("a rank sent no facts for the tuning of NCCL: {}", error.what()));
  }
}

std::vector<std::string> nccl_variables() {
  std::vector<std::string> variables;
  for (const auto& [name, value] : warmup::nccl_settings()) {
    const bool counts = std::ranges::none_of(
        kOfNoConsequence, [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (counts) variables.push_back(fmt::format("{}={}", name, value));
  }
  return variables;
}

std::string not_tuned_because(const std::vector<TuningFacts>& ranks, std::size_t communicators) {
  const std::uint64_t least_free = kBeside + communicators * kPerCommunicator;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const TuningFacts& facts = ranks[rank];
    if (!facts.in_the_way.empty()) return fmt::format("rank {}: {}", rank, facts.in_the_way);
    if (facts.nccl_version != ranks.front().nccl_version) {
      return fmt::format("rank {} would use NCCL {}, rank 0 NCCL {}: name one with --nccl-library",
                         rank, tuner::nccl_version_text(facts.nccl_version),
                         tuner::nccl_version_text(ranks.front().nccl_version));
    }
    if (facts.nccl_version < kFirstWithTuner) {
      return fmt::format(
          "NCCL {} asks no tuner that preload knows, {} and newer do: name one with "
          "--nccl-library",
          tuner::nccl_version_text(facts.nccl_version), tuner::nccl_version_text(kFirstWithTuner));
    }
    if (facts.free_bytes < least_free) {
      return fmt::format(
          "rank {}: {} are free on its GPU, and NCCL wants some {} for {} communicators: run "
          "preload tune before the GPUs are filled",
          rank, format_bytes(facts.free_bytes), format_bytes(least_free), communicators);
    }
  }
  return {};
}

std::map<std::string, std::string> tuning_fields(const std::vector<TuningFacts>& ranks,
                                                 const std::vector<RankPlace>& places,
                                                 int most_tokens) {
  Json nodes = Json::array(), gpus = Json::array(), variables = Json::array();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    nodes.push_back(places.at(rank).node);
    gpus.push_back(ranks[rank].gpu);
    variables.push_back(ranks[rank].variables);
  }
  return {{"nodes", nodes.dump()},
          {"gpus", gpus.dump(-1, ' ', false, Json::error_handler_t::replace)},
          {"nccl_variables", variables.dump(-1, ' ', false, Json::error_handler_t::replace)},
          {"max_num_batched_tokens", fmt::format("{}", most_tokens)}};
}

artifact::Environment job_environment(const std::vector<TuningFacts>& ranks) {
  std::set<std::string> names;
  for (const TuningFacts& facts : ranks) {
    for (const auto& [name, value] : facts.environment) names.insert(name);
  }
  artifact::Environment job;
  for (const std::string& name : names) {
    std::set<std::string> values;
    for (const TuningFacts& facts : ranks) {
      const auto at = facts.environment.find(name);
      values.insert(at == facts.environment.end() ? "unknown" : at->second);
    }
    job[name] = fmt::format("{}", fmt::join(values, ", "));
  }
  job["nccl"] = tuner::nccl_version_text(ranks.front().nccl_version);
  return job;
}

std::uint64_t tuning_buffer_bytes(const std::vector<TuningFacts>& ranks) noexcept {
  std::uint64_t bytes = kMostBuffer;
  for (const TuningFacts& facts : ranks) bytes = std::min(bytes, facts.free_bytes / kPartOfFree);
  return bytes;
}

}  // namespace preload::run
