// SPDX-License-Identifier: Apache-2.0
#include "warmup/tuning_store.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "plan/topology.hpp"
#include "tuner/tuning_table.hpp"

namespace preload::warmup {
namespace {

constexpr const char* kTable = "json";
constexpr const char* kCsv = "csv";
constexpr const char* kSweep = "sweep.json";
constexpr const char* kModelLabel = "model";
// Of a sweep: the SHA-256 of the table that was made of it.
constexpr const char* kTableLabel = "table";

std::string label(const artifact::Found& found, const char* name) {
  const auto& labels = found.entry.metadata.labels;
  const auto at = labels.find(name);
  return at == labels.end() ? std::string() : at->second;
}

}  // namespace

TuningStore::TuningStore(artifact::Tier& tier, std::string config, artifact::Environment job,
                         std::string model)
    : tier_(tier), config_(std::move(config)), job_(std::move(job)), model_(std::move(model)) {}

artifact::Key TuningStore::key(const char* suffix) const {
  return {std::string(artifact::kNcclTuner), config_,
          artifact::rank_filename(RankCoords{}, job_, suffix)};
}

std::optional<TuningTexts> TuningStore::find() {
  const auto table = tier_.get(key(kTable), job_);
  const auto sweep = table ? tier_.get(key(kSweep), job_) : std::nullopt;
  // One of them may have been written, and the other not: a full disk.
  if (!sweep || label(*sweep, kTableLabel) != table->entry.sha256) return std::nullopt;
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
  const std::string csv = to_csv(tuner::tuning_table_from_json(texts.table, "the table"));
  if (!put(kTable, texts.table) || !put(kCsv, csv)) return;
  put(kSweep, texts.sweep, sha256_hex(texts.table));
}

bool TuningStore::put(const char* suffix, const std::string& text, const std::string& table_hash) {
  artifact::Metadata metadata{job_, {{kModelLabel, model_}}};
  if (!table_hash.empty()) metadata.labels[kTableLabel] = table_hash;
  const artifact::Put done =
      tier_.put_bytes(key(suffix), text, metadata, artifact::Overwrite::kSameEnvironment);
  return done == artifact::Put::kStored || done == artifact::Put::kPresent;
}

std::string TuningStore::path_of(const std::string& table) {
  const auto found = tier_.get(key(kTable), job_);
  return found && found->entry.sha256 == sha256_hex(table) ? found->path : std::string();
}

std::vector<StoredSweep> stored_sweeps(artifact::Tier& tier, const std::string& model) {
  std::vector<StoredSweep> sweeps;
  for (const artifact::Entry& entry : tier.list(artifact::kNcclTuner)) {
    const std::string suffix = fmt::format(".{}", kSweep);
    if (!entry.key.filename.ends_with(suffix)) continue;
    const auto found = tier.get(entry.key, entry.metadata.environment);
    if (!found || (!model.empty() && label(*found, kModelLabel) != model)) continue;
    artifact::Key table = entry.key;
    table.filename.resize(table.filename.size() - suffix.size());
    table.filename += fmt::format(".{}", kTable);
    const auto beside = tier.get(table, entry.metadata.environment);
    const bool belongs = beside && beside->entry.sha256 == label(*found, kTableLabel);
    sweeps.push_back({belongs ? beside->path : std::string(),
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
