// SPDX-License-Identifier: Apache-2.0
#include "warmup/tuning_store.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "tuner/tuning_table.hpp"

namespace preload::warmup {
namespace {

constexpr const char* kTable = "json";
constexpr const char* kCsv = "csv";
constexpr const char* kSweep = "sweep.json";
constexpr const char* kModelLabel = "model";

}  // namespace

TuningStore::TuningStore(artifact::Tier& tier, const RankCoords& node_first, std::string config,
                         artifact::Environment here, std::string model)
    : tier_(tier),
      node_first_(node_first),
      config_(std::move(config)),
      here_(std::move(here)),
      model_(std::move(model)) {}

artifact::Key TuningStore::key(const char* suffix) const {
  return {std::string(artifact::kNcclTuner), config_,
          artifact::rank_filename(node_first_, here_, suffix)};
}

std::optional<TuningTexts> TuningStore::find() {
  const auto table = tier_.get(key(kTable), here_);
  const auto sweep = table ? tier_.get(key(kSweep), here_) : std::nullopt;
  if (!sweep) return std::nullopt;
  try {
    TuningTexts texts{table->text(), sweep->text()};
    static_cast<void>(tuner::tuning_table_from_json(texts.table, table->path));
    static_cast<void>(sweep_report_from_json(texts.sweep, sweep->path));
    return texts;
  } catch (const Error& error) {
    log::warn(fmt::format("{}; NCCL is tuned anew", error.what()));
    return std::nullopt;
  }
}

void TuningStore::keep(const TuningTexts& texts) {
  put(kSweep, texts.sweep);
  put(kCsv, to_csv(tuner::tuning_table_from_json(texts.table, "the table")));
  put(kTable, texts.table);
}

void TuningStore::put(const char* suffix, const std::string& text) {
  tier_.put_bytes(key(suffix), text, {here_, {{kModelLabel, model_}}},
                  artifact::Overwrite::kSameEnvironment);
}

std::string TuningStore::path() {
  const auto found = tier_.get(key(kTable), here_);
  return found ? found->path : std::string();
}

std::vector<StoredSweep> stored_sweeps(artifact::Tier& tier, const std::string& model) {
  std::vector<StoredSweep> sweeps;
  for (const artifact::Entry& entry : tier.list(artifact::kNcclTuner)) {
    const std::string suffix = fmt::format(".{}", kSweep);
    if (!entry.key.filename.ends_with(suffix)) continue;
    const auto label = entry.metadata.labels.find(kModelLabel);
    if (!model.empty() && (label == entry.metadata.labels.end() || label->second != model)) {
      continue;
    }
    const auto found = tier.get(entry.key, entry.metadata.environment);
    if (!found) continue;
    artifact::Key table = entry.key;
    table.filename.resize(table.filename.size() - suffix.size());
    table.filename += fmt::format(".{}", kTable);
    const auto beside = tier.get(table, entry.metadata.environment);
    sweeps.push_back({beside ? beside->path : std::string(),
                      sweep_report_from_json(found->text(), found->path)});
  }
  return sweeps;
}

std::string sweeps_json(const std::vector<StoredSweep>& sweeps) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const StoredSweep& sweep : sweeps) {
    Json each{{"table", sweep.table.empty() ? Json(nullptr) : Json(sweep.table)}};
    each.update(Json::parse(to_json(sweep.report)));
    list.push_back(std::move(each));
  }
  return Json{{"sweeps", std::move(list)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace preload::warmup
