// SPDX-License-Identifier: Apache-2.0
#include "run/rank_warmup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/tcp.hpp"
#include "hook/environment.hpp"
#include "run/cpu_binding.hpp"
#include "tuner/plugin_file.hpp"

namespace preload::run {
namespace {

// Unpacking gibibytes from a slow disk takes its time.
constexpr std::chrono::hours kSlowestRestore{1};
// Beyond the command's own limit: to end it, and to note how it went.
constexpr std::chrono::minutes kToEnd{2};
constexpr std::chrono::seconds kLeases{5};

// The GPU as this process's children may name it: its place in CUDA_VISIBLE_DEVICES.
std::string visible_name(int ordinal) {
  const std::string list = environment("CUDA_VISIBLE_DEVICES");
  if (list.empty()) return std::to_string(ordinal);
  std::size_t begin = 0;
  for (int i = 0; i < ordinal && begin != std::string::npos; ++i) {
    const std::size_t comma = list.find(',', begin);
    begin = comma == std::string::npos ? comma : comma + 1;
  }
  if (begin == std::string::npos) return std::to_string(ordinal);
  return list.substr(begin, list.find(',', begin) - begin);
}

// What an engine is to be started with to find its weights, by vLLM's names of its arguments.
std::string engine_json(const cli::ModelOptions& model, const ParallelSizes& sizes) {
  nlohmann::json engine{{"model", model.model},
                        {"tensor_parallel_size", sizes.tp},
                        {"pipeline_parallel_size", sizes.pp},
                        {"kv_cache_dtype", model.layout.kv_cache_dtype}};
  if (model.layout.dtype) {
    switch (*model.layout.dtype) {
      case DType::kF16:
        engine["dtype"] = "float16";
        break;
      case DType::kBF16:
        engine["dtype"] = "bfloat16";
        break;
      default:
        engine["dtype"] = "float32";
    }
  }
  if (model.open.revision != "main") engine["revision"] = model.open.revision;
  if (model.expert_parallel) engine["enable_expert_parallel"] = true;
  if (!model.hf_overrides.empty()) {
    engine["hf_overrides"] = nlohmann::json::parse(model.hf_overrides);
  }
  return engine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

// With the table that this job has tuned or found, unless the user has chosen a plugin.
std::map<std::string, std::string> RankWarmup::tuner_variables() const {
  const std::string chosen = hook::value_of(rank_.options.warmup.inherited, "NCCL_TUNER_PLUGIN");
  const bool is_another = !chosen.empty() && !tuner::names_plugin(chosen);
  if (rank_.tuner_table.empty() || is_another) return {};
  try {
    return {{"NCCL_TUNER_PLUGIN", tuner::find_plugin()},
            {"PRELOAD_TUNER_TABLE", rank_.tuner_table}};
  } catch (const Error& error) {
    log::warn(error.what());
    return {};
  }
}

bool RankWarmup::is_node_first() const { return rank_.launch.place.local == 0; }

WarmupFacts RankWarmup::own_facts() {
  WarmupFacts facts;
  facts.addresses = host_addresses();
  facts.free_port = listen_tcp().port;  // free again at once: whoever is told binds it
  facts.device = rank_.launch.device.device;
  if (rank_.launch.cuda) facts.visible = visible_name(rank_.launch.device.ordinal);
  facts.private_name = private_name();
  if (!is_node_first()) return facts;
  if (artifacts_->prepare(tuner_variables())) {
    facts.cache_root = artifacts_->root();
    facts.found = !rank_.options.warmup.always && artifacts_->find();
  }
  return facts;
}

void RankWarmup::prepare() {
  if (rank_.options.warmup.command.empty()) return;
  // What was adopted has been through its warm-up, and is to serve at once.
  const bool loaded =
      std::ranges::any_of(rank_.daemons, [](const RoleDaemon& d) { return !d.adopted; });
  if (!loaded) {
    log::info("no warm-up: the weights were taken over, not loaded");
    return;
  }
  artifacts_.emplace(rank_.options, rank_.launch, rank_.daemons.front().plan, rank_.cancel());
  std::vector<WarmupFacts> ranks;
  for (const std::string& text : rank_.group.all_gather(
           encode(own_facts()), {"every rank to look for an earlier warm-up", rank_.cancel(),
                                 std::chrono::seconds(kSlowestRestore)})) {
    ranks.push_back(decode_warmup_facts(text));
  }
  decide(ranks);
}

void RankWarmup::decide(const std::vector<WarmupFacts>& ranks) {
  const int first = first_of_node(rank_.launch, rank_.launch.coords.global);
  has_caches_ = !ranks.at(static_cast<std::size_t>(first)).cache_root.empty();
  plan_ = plan_warmup(rank_.options.warmup, rank_.launch, ranks);
  plan_->place.more = tuner_variables();
  plan_->place.slot = rank_.options.slot;
  plan_->place.engine_json = engine_json(rank_.options.model, rank_.launch.sizes);
  if (has_caches_) {
    rank_.front.set_engine_caches(artifacts_->root());
    for (RoleDaemon& daemon : rank_.daemons) {
      if (daemon.is_here()) daemon.residency->engine_caches = artifacts_->root();
    }
  }
  if (plan_->needed) open_serving();
}

// Before the ranks have parted: a rank that cannot has its warm-up fail, and serves all the same.
void RankWarmup::open_serving() try { serving_.emplace(rank_, *plan_); } catch (const Cancelled&) {
  throw;
} catch (const Error& error) {
  if (rank_.options.warmup.required) throw;
  log::warn(
      fmt::format("the command of --warmup-exec has no sockets of its own: {}; serving goes "
                  "on without it",
                  error.what()));
}

bool RankWarmup::run_command() {
  const cli::WarmupOptions& options = rank_.options.warmup;
  hook::HookPlace place = plan_->place;
  place.socket_dir = serving_->path();
  hook::Hook hook;
  hook.command = options.command;
  hook.limit = options.limit;
  const std::string root = has_caches_ ? artifacts_->root() : std::string();
  hook.environment =
      hook::hook_environment(options.inherited, place, root,
                             has_caches_ ? artifacts_->caches() : std::vector<hook::EngineCache>{});
  log::notice(fmt::format("warm-up: runs {} (scope {}, at most {} s)", options.command,
                          cli::scope_name(options.scope), options.limit.count()));
  // An engine compiles with as many threads as it may use.
  const CpuBinding binding(plan_->devices, "the warm-up");
  log::info(binding.account());
  const hook::HookEnd end = hook::run(hook, rank_.cancel(), [](std::string_view line) {
    log::notice(fmt::format("warm-up: {}", line));
  });
  rank_.cancel().check();
  if (end.left_over > 0) {
    log::warn(fmt::format("warm-up: processes that the command had left running were ended: {}",
                          end.left_over));
  }
  if (end.succeeded()) {
    log::notice(fmt::format("warm-up: the command {}", describe(end)));
    return true;
  }
  const std::string text = fmt::format("the command of --warmup-exec {}: {}", describe(end),
                                       end.cause == hook::HookEnd::Cause::kTimedOut
                                           ? "raise --warmup-exec-timeout, or see its output above"
                                           : "see its output above");
  if (options.required) throw Error(Errc::kUnexpectedEnd, text + " (--warmup-required)");
  log::warn(text + "; serving goes on without it");
  return false;
}

bool RankWarmup::succeeds() try {
  return serving_ && (!plan_->runs_here || run_command());
} catch (const Cancelled&) {
  throw;
} catch (const Error& error) {  // it could not even be started
  if (rank_.options.warmup.required) throw;
  log::warn(fmt::format("{}; serving goes on without it", error.what()));
  return false;
}

void RankWarmup::run() {
  if (!plan_) return;
  if (!plan_->needed) {
    rank_.front.set_warmup("found");
    return;
  }
  rank_.keeper->enter("warm-up");
  const bool succeeded = succeeds();
  const auto limit = rank_.options.warmup.limit + kToEnd;
  const auto failed = rank_.supervision.await_warm_ups(succeeded, rank_.cancel(), limit);
  rank_.cancel().check();
  if (serving_) serving_->end(std::chrono::steady_clock::now() + kLeases);
  serving_.reset();
  if (!failed) {
    throw Error(Errc::kTimeout, fmt::format("the warm-up of other ranks was not over {} s after "
                                            "this rank's: look at their output above",
                                            std::chrono::seconds(limit).count()));
  }
  conclude(*failed);
}

void RankWarmup::conclude(int failed) {
  rank_.front.set_warmup(failed == 0 ? "done" : "failed");
  if (failed > 0) return;
  if (is_node_first() && has_caches_) artifacts_->store();
}

}  // namespace preload::run
