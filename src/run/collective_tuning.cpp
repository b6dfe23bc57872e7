// SPDX-License-Identifier: Apache-2.0
#include "run/collective_tuning.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "artifact/config_hash.hpp"
#include "artifact/local_environment.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "memory/device.hpp"
#include "run/agreement.hpp"
#include "run/cpu_binding.hpp"
#include "run/kept_table.hpp"
#include "run/progress_line.hpp"
#include "warmup/decision.hpp"
#include "warmup/sweep.hpp"
#include "warmup/sweep_plan.hpp"
#include "warmup/sweep_table.hpp"
#include "warmup/traffic.hpp"

namespace preload::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kUsualElementBytes = 2;
constexpr std::chrono::minutes kSlowDisk{5};

std::uint64_t element_bytes(const TuningSubject& subject) {
  const auto dtype = subject.model.layout.dtype ? subject.model.layout.dtype : subject.spec.dtype;
  return dtype ? std::max(kUsualElementBytes, std::uint64_t{dtype_bits(*dtype)} / 8)
               : kUsualElementBytes;
}

std::string gpu_name(const std::string& uuid) {
  for (const Device& device : visible_devices()) {
    if (device.uuid == uuid) return device.name;
  }
  return "none";
}

// There always is one of several ranks.
std::size_t world_of(const std::vector<warmup::EngineGroup>& groups) {
  const auto world = std::ranges::find_if(groups, [](const warmup::EngineGroup& group) {
    return std::ranges::count(group.kinds, warmup::GroupKind::kWorld) > 0;
  });
  return static_cast<std::size_t>(world - groups.begin());
}

std::string not_tuned(std::string_view reason) {
  return fmt::format("NCCL's collectives are not tuned: {}", reason);
}

void say_not_tuned(std::string_view reason) { log::info(not_tuned(reason)); }

// All ranks know it alike.
AgreedError in_the_way(Errc code, std::string_view reason) {
  return {Error(code, fmt::format("NCCL's collectives cannot be tuned: {}", reason)), std::nullopt};
}

std::string why_empty(const warmup::SweepResult& result) {
  if (result.points.empty() && result.planned > 0) {
    return "the time of --autotune-budget was over before the first message";
  }
  return "NCCL asked its tuner nothing that its ranks agree on, so that they are warmed alone";
}

int ranks_per_node(const Launch& launch) {
  int most = 0;
  for (const RankPlace& place : launch.places) most = std::max(most, place.local_size);
  return most;
}

}  // namespace

CollectiveTuning::CollectiveTuning(RankContext& rank, const TuningSubject& subject,
                                   const warmup::Backend& backend)
    : rank_(rank), subject_(subject), backend_(backend) {}

TuningOutcome CollectiveTuning::run(TuningUse use) {
  if (rank_.options.tuning.disabled) {
    say_not_tuned("--disable-autotune");
    return {};
  }
  if (rank_.launch.sizes.world() == 1) {
    say_not_tuned("there is one rank");
    return {};
  }
  if (!rank_.launch.cuda && backend_.gpu) {
    if (use == TuningUse::kAnew) throw in_the_way(Errc::kDevice, "the ranks have no GPUs");
    say_not_tuned("the ranks hold host memory");
    return {};
  }
  const std::vector<TuningFacts> ranks = gather_facts();
  if (const std::string reason = not_tuned_because(ranks, engine_groups().size());
      !reason.empty()) {
    const bool wrong_library = !rank_.options.nccl_library.empty() &&
                               std::ranges::count(ranks, 0, &TuningFacts::nccl_version) > 0;
    if (wrong_library) throw in_the_way(Errc::kUsage, reason);
    if (use == TuningUse::kAnew) throw in_the_way(Errc::kLauncher, reason);
    if (rank_.launch.coords.global == 0) log::warn(not_tuned(reason));
    return {};
  }
  warmup::TuningStore store = make_store(ranks);
  std::optional<warmup::TuningTexts> texts;
  if (use != TuningUse::kAnew) texts = share_found(store);
  const bool found = texts.has_value();
  if (!found && use == TuningUse::kLookUp) {
    say_not_tuned("the weights were taken over, not loaded, and no earlier table is kept here");
    return {};
  }
  if (!found) texts = measure(ranks, use);
  if (!texts) return {};
  TuningOutcome outcome;
  outcome.report = warmup::sweep_report_from_json(texts->sweep, "the sweep");
  if (!found) keep(store, *texts);
  rank_.group.barrier({"every node to keep its tuning table", rank_.cancel(), kSlowDisk});
  outcome.table =
      path_kept_by_all(rank_.group, store, texts->table,
                       {"every rank to find its tuning table", rank_.cancel(), kSlowDisk});
  if (outcome.table.empty()) return outcome;
  log::info(fmt::format("{} {}; engines use it with NCCL_TUNER_PLUGIN={} PRELOAD_TUNER_TABLE={}",
                        found ? "NCCL's collectives were tuned before for this topology:"
                              : "NCCL's collectives are tuned:",
                        outcome.table, backend_.plugin, outcome.table));
  return outcome;
}

TuningFacts CollectiveTuning::own_facts() const {
  TuningFacts facts;
  facts.in_the_way = backend_.in_the_way;
  try {
    facts.nccl_version = warmup::nccl_library_version(rank_.options.nccl_library);
    facts.free_bytes = backend_.free_bytes(rank_.launch.device.ordinal);
  } catch (const Error& error) {
    facts.in_the_way = error.what();
  }
  facts.gpu = gpu_name(rank_.launch.device.device);
  facts.variables = nccl_variables();
  facts.environment = artifact::local_environment(rank_.launch.device.device);
  return facts;
}

std::vector<warmup::EngineGroup> CollectiveTuning::engine_groups() const {
  return warmup::engine_groups(rank_.launch.sizes, rank_.launch.coords.global,
                               subject_.spec.num_experts > 0);
}

std::vector<TuningFacts> CollectiveTuning::gather_facts() {
  std::vector<TuningFacts> ranks;
  for (const std::string& text : rank_.group.all_gather(
           encode(own_facts()), {"every rank to look at its NCCL", rank_.cancel()})) {
    ranks.push_back(decode_tuning_facts(text));
  }
  return ranks;
}

warmup::TuningStore CollectiveTuning::make_store(const std::vector<TuningFacts>& ranks) {
  const Launch& launch = rank_.launch;
  artifact::JobFields fields =
      artifact::job_fields(subject_.checkpoint.config_json, subject_.model.hf_overrides,
                           subject_.model.layout, launch.sizes);
  fields.merge(tuning_fields(ranks, launch.places, rank_.options.tuning.most_tokens));
  return {tier_, artifact::config_hash(fields), job_environment(ranks), subject_.model.model};
}

std::optional<warmup::TuningTexts> CollectiveTuning::share_found(warmup::TuningStore& store) {
  const auto mine = is_node_first() ? store.find() : std::nullopt;
  const std::vector<std::string> digests =
      rank_.group.all_gather(mine ? sha256_hex(mine->table + mine->sweep) : std::string(),
                             {"every node to look for a tuning table", rank_.cancel(), kSlowDisk});
  const auto first = std::ranges::find_if(digests, [](const auto& each) { return !each.empty(); });
  if (first == digests.end()) return std::nullopt;
  const auto root = static_cast<int>(first - digests.begin());
  const Wait wait{"the tuning table of another node", rank_.cancel()};
  const warmup::TuningTexts texts{
      rank_.group.broadcast(mine ? mine->table : std::string(), root, wait),
      rank_.group.broadcast(mine ? mine->sweep : std::string(), root, wait)};
  if (texts != mine) keep(store, texts);
  return texts;
}

std::optional<warmup::TuningTexts> CollectiveTuning::measure(const std::vector<TuningFacts>& ranks,
                                                             TuningUse use) {
  if (rank_.keeper) rank_.keeper->enter("tuning NCCL");
  const Launch& launch = rank_.launch;
  const CpuBinding binding(launch.device.device);  // NCCL's threads, too
  const std::vector<warmup::EngineGroup> groups = engine_groups();
  const std::uint64_t buffer = tuning_buffer_bytes(ranks);
  warmup::NcclTimerOptions options;
  options.library = rank_.options.nccl_library;
  options.plugin = backend_.plugin;
  const auto start = Clock::now();
  const auto timer = warmup::make_nccl_timer(rank_.group, groups,
                                             backend_.make_device(launch.device.ordinal, buffer),
                                             options, rank_.cancel());
  log::info(fmt::format("NCCL {}: communicators formed in {:.1f} s",
                        tuner::nccl_version_text(timer->nccl_version()),
                        std::chrono::duration<double>(Clock::now() - start).count()));
  const std::vector<std::vector<tuner::Shape>> shapes = gather_shapes(*timer);
  const warmup::SweepReport report = sweep(*timer, shapes, groups, ranks, buffer);
  rank_.group.barrier({"every rank to end its collectives", rank_.cancel()});
  timer->release();
  log::info(fmt::format("NCCL: {}", warmup::summary(report.result)));
  std::vector<tuner::Shape> formed;
  for (const auto& of_rank : shapes) formed.insert(formed.end(), of_rank.begin(), of_rank.end());
  const tuner::TuningTable table =
      warmup::make_table(report.result, report.nccl_version, report.topology, std::move(formed));
  if (table.entries.empty()) {
    if (use == TuningUse::kAnew) throw in_the_way(Errc::kLauncher, why_empty(report.result));
    if (launch.coords.global == 0) log::warn(not_tuned(why_empty(report.result)));
    return std::nullopt;
  }
  tuner::check(table, "the table that was measured");
  return warmup::TuningTexts{to_json(table), to_json(report)};
}

std::vector<std::vector<tuner::Shape>> CollectiveTuning::gather_shapes(
    const warmup::NcclTimer& timer) {
  nlohmann::json mine = nlohmann::json::array();
  for (const tuner::Shape& shape : timer.shapes()) mine.push_back({shape.ranks, shape.nodes});
  std::vector<std::vector<tuner::Shape>> shapes;
  for (const std::string& text :
       rank_.group.all_gather(mine.dump(), {"every rank's NCCL communicators", rank_.cancel()})) {
    std::vector<tuner::Shape>& of_rank = shapes.emplace_back();
    for (const auto& each : nlohmann::json::parse(text)) {
      of_rank.push_back({each.at(0).get<int>(), each.at(1).get<int>()});
    }
  }
  return shapes;
}

warmup::SweepReport CollectiveTuning::sweep(warmup::NcclTimer& timer,
                                            const std::vector<std::vector<tuner::Shape>>& shapes,
                                            const std::vector<warmup::EngineGroup>& groups,
                                            const std::vector<TuningFacts>& ranks,
                                            std::uint64_t buffer_bytes) {
  warmup::MessageSizes sizes =
      warmup::message_sizes(subject_.spec, element_bytes(subject_),
                            static_cast<std::uint64_t>(rank_.options.tuning.most_tokens));
  sizes.most_bytes = buffer_bytes;
  const auto start = Clock::now();
  ProgressLine line(STDERR_FILENO);
  warmup::SweepOptions options;
  options.budget_s = rank_.options.tuning.budget_s;
  options.clock = [start] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  if (rank_.launch.coords.global == 0) {
    options.progress = [&](const std::string& text) {
      const std::string whole = fmt::format("tuning NCCL: {}", text);
      line.show(whole, Clock::now());
      rank_.front.progress(whole);
    };
  }
  warmup::SweepReport report;
  report.model = subject_.model.model;
  report.nccl_version = timer.nccl_version();
  std::set<std::string> gpus;
  for (const TuningFacts& facts : ranks) gpus.insert(facts.gpu);
  report.topology.gpus.assign(gpus.begin(), gpus.end());
  report.topology.world = shapes.front().at(world_of(groups));
  report.topology.ranks_per_node = ranks_per_node(rank_.launch);
  for (const warmup::EngineGroup& each : groups) report.groups.push_back(describe(each));
  report.margin = warmup::kMargin;
  report.budget_s = options.budget_s;
  report.result = warmup::sweep(rank_.group, timer, plan_sweep(groups, shapes, sizes), shapes,
                                options, rank_.cancel());
  return report;
}

void CollectiveTuning::keep(warmup::TuningStore& store, const warmup::TuningTexts& texts) {
  if (is_node_first()) store.keep(texts);
}

}  // namespace preload::run
