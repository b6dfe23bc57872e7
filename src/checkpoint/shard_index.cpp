// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkpoint/json_events.hpp"

namespace preload {

namespace {

constexpr std::string_view kRemedy =
    "download the index again, or pass --rebuild-index to take the tensors from the headers";

class IndexReader final : public JsonHandler {
 public:
  explicit IndexReader(Problems& problems) : problems_(problems) {}

  void open(bool object) override {
    ++depth_;
    if (depth_ == 1) is_object_ = object;
    if (depth_ == 2 && in_map_) has_map_ = object;
    if (depth_ == 3 && in_map_) no_file();
  }
  void close() override { --depth_; }
  void key(std::string& name) override {
    if (depth_ == 1) in_map_ = name == "weight_map";
    if (depth_ == 2 && in_map_) tensor_ = std::move(name);
  }
  void string(std::string& value) override {
    if (depth_ != 2 || !in_map_) return;
    index_.entries.push_back({std::move(tensor_), std::move(value)});
  }
  void number(std::uint64_t) override { other(); }
  void other() override {
    if (depth_ == 2 && in_map_) no_file();
  }

  bool has_map() const { return is_object_ && has_map_; }
  ShardIndex take() { return std::move(index_); }

 private:
  void no_file() {
    problems_.add(kIndexName, tensor_, fmt::format("is given no file name; {}", kRemedy));
  }

  Problems& problems_;
  int depth_ = 0;
  bool is_object_ = false;
  bool in_map_ = false;
  bool has_map_ = false;
  std::string tensor_;
  ShardIndex index_;
};

// Empty when the name stays below the checkpoint's directory.
std::string_view name_fault(std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos) return "is no file name";
  if (name.front() == '/') return "is an absolute path";
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    if (name.substr(at, end - at) == "..") return "leaves the checkpoint's directory";
    at = end + 1;
  }
  if (!name.ends_with(".safetensors")) return "is no safetensors file";
  return {};
}

}  // namespace

const std::string* ShardIndex::file_of(std::string_view tensor) const {
  const auto at = std::ranges::lower_bound(entries, tensor, {}, &Entry::tensor);
  return at != entries.end() && at->tensor == tensor ? &at->file : nullptr;
}

std::vector<std::string> ShardIndex::files() const {
  std::set<std::string_view> names;
  for (const Entry& entry : entries) names.insert(entry.file);
  return {names.begin(), names.end()};
}

std::optional<ShardIndex> parse_shard_index(std::string_view json, Problems& problems) {
  Problems found;
  IndexReader reader(found);
  const auto error = parse_json(json, reader);
  ShardIndex index = reader.take();
  if (error) {
    found.add(kIndexName, fmt::format("is no valid JSON ({}); {}", *error, kRemedy));
  } else if (!reader.has_map()) {
    found.add(kIndexName, fmt::format("has no \"weight_map\" object; {}", kRemedy));
  } else if (index.entries.empty() && found.empty()) {
    found.add(kIndexName, fmt::format("names no tensor; {}", kRemedy));
  }
  std::ranges::stable_sort(index.entries, {}, &ShardIndex::Entry::tensor);
  for (std::size_t i = 1; i < index.entries.size(); ++i) {
    if (index.entries[i].tensor == index.entries[i - 1].tensor) {
      found.add(kIndexName, index.entries[i].tensor, fmt::format("is named twice; {}", kRemedy));
    }
  }
  for (const std::string& file : index.files()) {
    if (const std::string_view fault = name_fault(file); !fault.empty()) {
      found.add(kIndexName,
                fmt::format("names the file {}, which {}; {}", quote(file), fault, kRemedy));
    }
  }
  problems.merge(kIndexName, found);
  if (!found.empty()) return std::nullopt;
  return index;
}

}  // namespace preload
