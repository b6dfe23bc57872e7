// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/reconcile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/bytes.hpp"
#include "base/counted.hpp"

namespace preload {

namespace {

using Holders = std::unordered_map<std::string_view, std::vector<std::string_view>>;

Holders holders_of(const std::vector<WeightFile>& files) {
  Holders holders;
  for (const WeightFile& file : files) {
    for (const SourceTensor& tensor : file.tensors) {
      holders[tensor.name].push_back(file.file.name);
    }
  }
  return holders;
}

// The usual case, decided without tables: every header's tensors are those that the index places in
// its file.
bool agrees(const ShardIndex& index, const std::vector<WeightFile>& files) {
  std::size_t count = 0;
  for (const WeightFile& file : files) {
    for (const SourceTensor& tensor : file.tensors) {
      const std::string* named = index.file_of(tensor.name);
      if (named == nullptr || *named != file.file.name) return false;
    }
    count += file.tensors.size();
  }
  return count == index.entries.size();
}

bool any_name_twice(const std::vector<WeightFile>& files) {
  std::size_t count = 0;
  for (const WeightFile& file : files) count += file.tensors.size();
  std::unordered_set<std::string_view> names;
  names.reserve(count);
  for (const WeightFile& file : files) {
    for (const SourceTensor& tensor : file.tensors) names.insert(tensor.name);
  }
  return names.size() != count;
}

// True when both hold the same bytes.
bool same_payload(int directory, const std::string& file_a, const SourceTensor& a,
                  const std::string& file_b, const SourceTensor& b, Problems& problems) {
  const Fd fd_a = open_weight_file(directory, file_a, problems);
  const Fd fd_b = open_weight_file(directory, file_b, problems);
  if (!fd_a || !fd_b) return true;  // already a problem
  std::vector<std::byte> left(kMiB), right(kMiB);
  for (std::uint64_t at = 0; at < a.bytes; at += left.size()) {
    const std::size_t count = std::min<std::uint64_t>(left.size(), a.bytes - at);
    const std::size_t got_a =
        pread_full(fd_a.get(), std::span(left).first(count), a.offset + at, file_a);
    const std::size_t got_b =
        pread_full(fd_b.get(), std::span(right).first(count), b.offset + at, file_b);
    if (got_a != count || got_b != count || std::memcmp(left.data(), right.data(), count) != 0) {
      return false;
    }
  }
  return true;
}

struct Copy {
  WeightFile* file = nullptr;
  std::size_t tensor = 0;
  const SourceTensor& stored() const { return file->tensors[tensor]; }
};

// The copy to keep: where the index says, else the first.
std::size_t kept_copy(const ShardIndex* index, const std::vector<Copy>& copies) {
  if (index == nullptr) return 0;
  const std::string* named = index->file_of(copies.front().stored().name);
  if (named == nullptr) return 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].file->file.name == *named) return i;
  }
  return 0;
}

std::string difference(int directory, const Copy& a, const Copy& b, Problems& problems) {
  if (a.stored().dtype != b.stored().dtype || a.stored().shape != b.stored().shape) {
    return fmt::format("{} {} and {} {}", dtype_name(a.stored().dtype), to_string(a.stored().shape),
                       dtype_name(b.stored().dtype), to_string(b.stored().shape));
  }
  const bool same = same_payload(directory, a.file->file.name, a.stored(), b.file->file.name,
                                 b.stored(), problems);
  return same ? "" : "different bytes";
}

}  // namespace

void check_index(const ShardIndex& index, const std::vector<WeightFile>& files, bool rebuild_index,
                 std::vector<std::string>& warnings, Problems& problems) {
  if (agrees(index, files)) return;
  const Holders holders = holders_of(files);
  std::map<std::string_view, std::vector<std::string>> absent;  // by the file that should hold them
  std::vector<std::string> stale;
  for (const auto& [tensor, file] : index.entries) {
    const auto held = holders.find(tensor);
    if (held == holders.end()) {
      absent[file].push_back(tensor);
    } else if (std::find(held->second.begin(), held->second.end(), file) == held->second.end()) {
      stale.push_back(
          fmt::format("{} is in {}, not in {}", quote(tensor), held->second.front(), file));
    }
  }
  for (const WeightFile& file : files) {
    for (const SourceTensor& tensor : file.tensors) {
      if (index.file_of(tensor.name) == nullptr) {
        stale.push_back(
            fmt::format("{} in {} is not in the index", quote(tensor.name), file.file.name));
      }
    }
  }
  for (const auto& [file, tensors] : absent) {
    problems.add(file, fmt::format("lacks {} that {} places there, and no other file holds "
                                   "{}: {}; download the file again, or remove the index if the "
                                   "model is meant to be without",
                                   counted(tensors.size(), "tensor"), kIndexName,
                                   tensors.size() == 1 ? "it" : "them", quote_list(tensors)));
  }
  if (stale.empty() || !absent.empty()) return;
  std::string examples;
  for (std::size_t i = 0; i < std::min<std::size_t>(stale.size(), 5); ++i) {
    examples += (i == 0 ? "" : "; ") + stale[i];
  }
  if (stale.size() > 5) examples += fmt::format("; and {} more", stale.size() - 5);
  if (rebuild_index) {
    warnings.push_back(fmt::format("{} is stale ({}): tensors taken from the headers of {}",
                                   kIndexName, examples, counted(files.size(), "file")));
  } else {
    problems.add(kIndexName, fmt::format("is stale, the headers hold every tensor: {}; pass "
                                         "--rebuild-index to take the tensors from the headers, or "
                                         "download the index again",
                                         examples));
  }
}

bool hold_everything(const ShardIndex& index, const std::vector<WeightFile>& files) {
  const Holders holders = holders_of(files);
  return std::ranges::all_of(index.entries, [&](const ShardIndex::Entry& entry) {
    return holders.contains(entry.tensor);
  });
}

void drop_duplicates(int directory, const ShardIndex* index, std::vector<WeightFile>& files,
                     std::vector<std::string>& warnings, Problems& problems) {
  if (!any_name_twice(files)) return;
  std::unordered_map<std::string_view, std::vector<Copy>> by_name;
  for (WeightFile& file : files) {
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
      by_name[file.tensors[i].name].push_back({&file, i});
    }
  }
  std::map<std::string_view, std::vector<Copy>> several;
  for (auto& [name, copies] : by_name) {
    if (copies.size() > 1) several.emplace(name, std::move(copies));
  }

  std::vector<std::string> equal;
  std::map<WeightFile*, std::unordered_set<std::size_t>> dropped;
  for (const auto& [name, copies] : several) {
    const std::size_t kept = kept_copy(index, copies);
    bool same = true;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (i == kept) continue;
      const std::string what = difference(directory, copies[kept], copies[i], problems);
      if (what.empty()) {
        dropped[copies[i].file].insert(copies[i].tensor);
        continue;
      }
      same = false;
      problems.add(copies[i].file->file.name, name,
                   fmt::format("is also in {}, with {}; download both files again, or leave one "
                               "model's files",
                               copies[kept].file->file.name, what));
    }
    if (same) equal.emplace_back(name);
  }
  if (!equal.empty()) {
    warnings.push_back(fmt::format("{} tensor{} in several files with equal bytes, read once: {}",
                                   equal.size(), equal.size() == 1 ? " is" : "s are",
                                   quote_list(equal)));
  }
  for (auto& [file, indices] : dropped) {
    std::vector<SourceTensor> left;
    for (std::size_t i = 0; i < file->tensors.size(); ++i) {
      if (!indices.contains(i)) left.push_back(std::move(file->tensors[i]));
    }
    file->tensors = std::move(left);
  }
}

}  // namespace preload
