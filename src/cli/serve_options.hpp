// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "checkpoint/checkpoint.hpp"
#include "cli/options.hpp"
#include "cli/speculative_config.hpp"
#include "cli/warmup_options.hpp"
#include "load/read_method.hpp"
#include "memory/slab.hpp"
#include "model/layout.hpp"
#include "plan/spread_choice.hpp"
#include "plan/topology.hpp"
#include "serve/keeper_use.hpp"

namespace preload::cli {

// What selects bytes and layout: shared by serve, plan, key, verify and bench.
struct ModelOptions {
  std::string model;
  OpenOptions open;
  LayoutRequest layout;
  std::string hf_overrides;  // JSON object or empty
  std::optional<SpeculativeConfig> speculative;
  std::optional<int> dp;
  int pp = 1;
  int tp = 1;
  bool expert_parallel = false;
  std::vector<int> stage_layers;  // --pipeline-layers; empty: as vLLM splits them
};

// Of NCCL's collectives, before READY.
struct TuningOptions {
  bool disabled = false;   // --disable-autotune
  double budget_s = 60;    // --autotune-budget
  int most_tokens = 8192;  // --max-num-batched-tokens
};

struct ServeOptions {
  ModelOptions model;
  std::optional<bool> cuda;  // --device; unset: cuda where there is a GPU, else host
  HandleKind export_kind = HandleKind::kVmm;  // --export, for cuda
  std::string slot;
  SocketDirChoice socket_dir;
  std::uint64_t ring_bytes = 512 * kMiB;
  std::optional<ReadMethod> reader;     // --reader, unset = auto
  Spread spread = Spread::kAuto;        // --spread
  std::string nccl_library;             // --nccl-library, "" = the usual name
  int threads = 0;                      // --reader-threads, 0 = by the CPUs at hand
  std::optional<int> reads_in_flight;   // --reads-in-flight, of a node
  bool replace = false;                 // --replace
  std::optional<double> drain_s;        // --drain, with it
  KeeperUse keeper = KeeperUse::kAuto;  // --keeper
  std::chrono::seconds lease_wait{5};   // --lease-wait
  TuningOptions tuning;
  WarmupOptions warmup;
  std::string health_host = "127.0.0.1";
  int health_port = 0;  // 0: neither /health nor /metrics
  log::Level log_level = log::Level::kInfo;
};

// What selects bytes and layout, for every command that takes a model. `model` stays empty when it
// is not given.
ModelOptions model_options(const ParsedOptions& options);
// The sizes of a job of `world` ranks.
ParallelSizes job_sizes(const ModelOptions& model, int world);
// The job that the sizes themselves make, where no launcher says how many ranks there are.
ParallelSizes own_sizes(const ModelOptions& model);
// --rank, 0 unless given; throws Error(kUsage) when the job has no such rank.
int rank_option(const ParsedOptions& options, const ParallelSizes& sizes);

log::Level log_level_option(const ParsedOptions& options);

// Of the flags that serve and bench share; unset when not given, or auto.
std::optional<bool> device_option(const ParsedOptions& options);
std::optional<std::uint64_t> ring_bytes_option(const ParsedOptions& options);
std::optional<ReadMethod> reader_option(const ParsedOptions& options);

// --spread, as serve and plan take it.
Spread spread_option(const ParsedOptions& options);

// Flags, then environment, then defaults; `-` and `_` alike. Throws Error(kUsage) naming the flag.
ServeOptions parse_serve_options(const std::vector<std::string>& arguments);

}  // namespace preload::cli
