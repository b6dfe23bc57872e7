// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/json_events.hpp"
#include "checkpoint/problems.hpp"
#include "checkpoint/reconcile.hpp"
#include "checkpoint/weight_file.hpp"
#include "checkpoint/weight_selection.hpp"

namespace preload {

namespace {

constexpr std::string_view kConfigName = "config.json";
constexpr std::string_view kQuantizationName = "hf_quant_config.json";
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

void read_config(int directory, const std::vector<std::string>& entries, Checkpoint& checkpoint,
                 Problems& problems) {
  checkpoint.config_json = "{}";
  if (!std::binary_search(entries.begin(), entries.end(), kConfigName)) {
    checkpoint.warnings.push_back(
        "no config.json beside the weights: the architecture is unknown, only layout hf fits");
    return;
  }
  auto text = read_text_file(directory, std::string(kConfigName), kMaxConfigBytes, problems);
  if (!text) return;
  if (const auto error = json_syntax_error(*text)) {
    problems.add(kConfigName, fmt::format("is no valid JSON ({}); download it again", *error));
  } else {
    checkpoint.config_json = std::move(*text);
  }
}

// ModelOpt wrote the format of quantised weights into a file of its own, which engines read where
// config.json has none.
void read_quantization(int directory, const std::vector<std::string>& entries,
                       Checkpoint& checkpoint, Problems& problems) {
  if (!std::binary_search(entries.begin(), entries.end(), kQuantizationName)) return;
  auto config = nlohmann::ordered_json::parse(checkpoint.config_json, nullptr, false);
  if (!config.is_object()) return;
  const auto stated = config.find("quantization_config");
  if (stated != config.end() && !stated->is_null()) return;
  const auto text =
      read_text_file(directory, std::string(kQuantizationName), kMaxConfigBytes, problems);
  if (!text) return;
  auto format = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (format.is_discarded()) {
    problems.add(kQuantizationName, "is no valid JSON; download it again");
    return;
  }
  config["quantization_config"] = std::move(format);
  checkpoint.config_json = config.dump();
}

std::vector<WeightFile> read_headers(int directory, const std::vector<std::string>& names,
                                     Problems& problems) {
  std::vector<WeightFile> files;
  for (auto& file : read_weight_files(directory, names, problems)) {
    if (file) files.push_back(std::move(*file));
  }
  return files;
}

// When the index names files that are not there: do the files that are there hold it all?
void diagnose_missing(int directory, const WeightSelection& selection,
                      const std::vector<std::string>& entries, Problems& problems) {
  Problems ignored;
  std::vector<std::string> warnings;
  const std::vector<std::string> names = weights_by_name(entries, warnings, ignored);
  if (names.empty() || !ignored.empty() || names == selection.files) return;
  const std::vector<WeightFile> files = read_headers(directory, names, ignored);
  if (!ignored.empty() || !hold_everything(*selection.index, files)) return;
  problems.add(kIndexName,
               fmt::format("is stale: {} hold every tensor that it names; pass --rebuild-index to "
                           "take the tensors from their headers, or download the index again",
                           quote_list(names, 6)));
}

void assemble(std::vector<WeightFile> files, Checkpoint& checkpoint) {
  for (WeightFile& file : files) {
    const auto number = static_cast<std::uint32_t>(checkpoint.files.size());
    for (SourceTensor& tensor : file.tensors) tensor.file = number;
    checkpoint.files.push_back(std::move(file.file));
    std::move(file.tensors.begin(), file.tensors.end(), std::back_inserter(checkpoint.tensors));
  }
}

}  // namespace

TensorNames::TensorNames(const Checkpoint& checkpoint) {
  index_.reserve(checkpoint.tensors.size());
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    index_.emplace(checkpoint.tensors[i].name, static_cast<std::uint32_t>(i));
  }
}

std::optional<std::uint32_t> TensorNames::find(std::string_view name) const {
  const auto at = index_.find(name);
  if (at == index_.end()) return std::nullopt;
  return at->second;
}

Checkpoint open_checkpoint(const std::string& model, const OpenOptions& options) {
  Checkpoint checkpoint;
  checkpoint.directory = resolve_model(model, options);
  checkpoint.name = model;
  const Fd directory =
      open_fd(AT_FDCWD, checkpoint.directory, O_RDONLY | O_DIRECTORY, 0, Errc::kCheckpoint);
  const std::vector<std::string> entries = list_directory(directory.get(), checkpoint.directory);

  Problems problems;
  read_config(directory.get(), entries, checkpoint, problems);
  read_quantization(directory.get(), entries, checkpoint, problems);
  WeightSelection selection =
      select_weights(directory.get(), entries, options.rebuild_index, problems);
  std::move(selection.warnings.begin(), selection.warnings.end(),
            std::back_inserter(checkpoint.warnings));
  std::vector<WeightFile> files = read_headers(directory.get(), selection.files, problems);

  // Comparisons between files mean something only when all of them were read.
  const bool complete = files.size() == selection.files.size();
  if (selection.index && complete) {
    check_index(*selection.index, files, options.rebuild_index, checkpoint.warnings, problems);
  } else if (selection.index && !selection.rebuilt) {
    diagnose_missing(directory.get(), selection, entries, problems);
  }
  if (complete) {
    drop_duplicates(directory.get(), selection.index ? &*selection.index : nullptr, files,
                    checkpoint.warnings, problems);
  }
  problems.throw_if_any(fmt::format("'{}'", checkpoint.directory));
  assemble(std::move(files), checkpoint);
  return checkpoint;
}

}  // namespace preload
