// SPDX-License-Identifier: Apache-2.0
#include "load/read_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/counted.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "load/cache_dir.hpp"
#include "load/uring.hpp"

namespace preload {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr double kClearly = 1.1;
constexpr const char* kFolder = "reading";
constexpr const char* kFile = "tuning.json";

std::string text_of(const TuningKey& key) {
  return fmt::format("{} cpus={} dev={} {} {}", key.host, key.cpus, key.file_system,
                     key.past_the_cache ? "cold" : "hot", key.device ? "cuda" : "host");
}

Json read_store(int folder) {
  const std::optional<std::string> text = read_file_at(folder, kFile);
  if (!text) return Json::object();
  Json store = Json::parse(*text, nullptr, false);
  const bool known = store.is_object() && store.value("version", 0) == kVersion &&
                     store.contains("tunings") && store["tunings"].is_object();
  return known ? store["tunings"] : Json::object();
}

}  // namespace

std::vector<ReadTuning> tunings_to_try(const TuningChoice& choice) {
  std::vector<ReadMethod> methods;
  if (choice.fixed_method) {
    methods = {*choice.fixed_method};
  } else if (choice.past_the_cache) {
    methods = {ReadMethod::kDirect};
    if (Uring::is_built() && !Uring::refusal()) methods.push_back(ReadMethod::kUring);
  } else {
    methods = {ReadMethod::kPread};
    if (choice.may_map) methods.push_back(ReadMethod::kMmap);
  }
  std::vector<ReadTuning> tunings;
  for (const ReadMethod method : methods) tunings.push_back({method, choice.usual_threads});
  if (!choice.fixed_threads && choice.most_threads != choice.usual_threads) {
    tunings.push_back({methods.front(), choice.most_threads});
  }
  return tunings;
}

ChosenTuning choose_tuning(const std::vector<ReadTuning>& tunings, std::uint64_t load_bytes,
                           const TuningTrial& run, std::uint64_t least_trial_bytes) {
  const auto share = static_cast<std::uint64_t>(kTrialPart * static_cast<double>(load_bytes) /
                                                static_cast<double>(tunings.size()));
  if (tunings.size() == 1 || share < least_trial_bytes) return {tunings.front(), false};
  const auto time = kTrialTime / static_cast<int>(tunings.size());
  ReadTuning best = tunings.front();
  double best_rate = 0;
  for (const ReadTuning& tuning : tunings) {
    // In steps, so that a slow disk does not take its part of the bytes, but of the time.
    const Clock::time_point start = Clock::now();
    std::uint64_t done = 0;
    while (done < share && Clock::now() - start < time) {
      const std::uint64_t step = run(tuning, std::min(least_trial_bytes, share - done));
      if (step == 0) break;
      done += step;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const double rate = static_cast<double>(done) / seconds;
    log::debug(fmt::format("trial: {} on {}: {:.1f} GB/s", read_method_name(tuning.method),
                           counted(tuning.threads, "thread"), rate / 1e9));
    if (rate > best_rate * (best_rate == 0 ? 1 : kClearly)) {
      best = tuning;
      best_rate = rate;
    }
  }
  return {best, true};
}

std::optional<ReadTuning> recall_tuning(const TuningKey& key) {
  try {
    const Fd folder = open_cache_dir(kFolder, false);
    if (!folder) return std::nullopt;
    const Json store = read_store(folder.get());
    const auto found = store.find(text_of(key));
    if (found == store.end()) return std::nullopt;
    const auto method = read_method_from_name(found->at("reader").get<std::string>());
    const int threads = found->at("threads").get<int>();
    if (!method || threads < 1) return std::nullopt;
    return ReadTuning{*method, threads};
  } catch (const std::exception& error) {
    log::debug(fmt::format("no tuning of reads is kept: {}", error.what()));
    return std::nullopt;
  }
}

void remember_tuning(const TuningKey& key, const ReadTuning& tuning) {
  try {
    const Fd folder = open_cache_dir(kFolder, true);
    if (!folder) return;
    Json store = read_store(folder.get());
    store[text_of(key)] = {{"reader", read_method_name(tuning.method)},
                           {"threads", tuning.threads}};
    write_file_at(folder.get(), kFile,
                  Json{{"version", kVersion}, {"tunings", std::move(store)}}.dump(1));
  } catch (const std::exception& error) {
    log::debug(fmt::format("the tuning of reads is not kept: {}", error.what()));
  }
}

}  // namespace preload
