// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "load/read_method.hpp"

namespace preload {

// What differs between hosts of one kind, so that it is measured: how to read, on how many threads.
struct ReadTuning {
  ReadMethod method = ReadMethod::kPread;
  int threads = 1;
  friend bool operator==(const ReadTuning&, const ReadTuning&) = default;
};

// What is worth trying, the usual first. `fixed_*`: given by a flag, and not tried otherwise.
struct TuningChoice {
  bool past_the_cache = false;  // the files are read past the page cache
  bool may_map = true;          // none lies on a network file system
  int usual_threads = 1;
  int most_threads = 1;
  std::optional<ReadMethod> fixed_method = std::nullopt;
  bool fixed_threads = false;
};
std::vector<ReadTuning> tunings_to_try(const TuningChoice& choice);

// Trials take at most this part of a load's bytes, and this time in all; a load too small for that
// to say anything is not measured.
inline constexpr double kTrialPart = 0.03;
inline constexpr std::chrono::milliseconds kTrialTime{1000};
inline constexpr std::uint64_t kLeastTrialBytes = std::uint64_t{64} << 20;  // of each tuning

// Tries each tuning on some bytes: `run(tuning, bytes)` loads about so many and returns how many it
// were. Another than the first is chosen only where it is clearly faster: short trials are noisy.
using TuningTrial = std::function<std::uint64_t(const ReadTuning&, std::uint64_t)>;
struct ChosenTuning {
  ReadTuning tuning;
  bool tried = false;  // not the only one there was, nor chosen untried
};
ChosenTuning choose_tuning(const std::vector<ReadTuning>& tunings, std::uint64_t load_bytes,
                           const TuningTrial& run,
                           std::uint64_t least_trial_bytes = kLeastTrialBytes);

// Choices are kept under the cache root, by what they depend on: host, CPUs, file system, whether
// the files are read past the page cache, and what the weights are loaded into.
struct TuningKey {
  std::string host;
  int cpus = 0;
  std::uint64_t file_system = 0;  // st_dev
  bool past_the_cache = false;
  bool device = false;
};
// Throw never: a store that cannot be used is one without the entry.
std::optional<ReadTuning> recall_tuning(const TuningKey& key);
void remember_tuning(const TuningKey& key, const ReadTuning& tuning);

}  // namespace preload
