// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_selection.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "base/counted.hpp"
#include "base/fd.hpp"
#include "checkpoint/weight_file.hpp"

namespace preload {

namespace {

constexpr std::size_t kMaxIndexBytes = std::size_t{256} << 20;
constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kHere = "directory";  // stands for the file in a line about all of them

// "<prefix>-<number>-of-<total>.safetensors".
struct ShardName {
  std::string prefix, total;
  unsigned long number = 0;
};
std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.rfind("-of-");
  if (of == std::string_view::npos || of == 0) return std::nullopt;
  const std::size_t dash = name.rfind('-', of - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view number = name.substr(dash + 1, of - dash - 1);
  const std::string_view total = name.substr(of + 4);
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.size() <= 6 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!digits(number) || !digits(total)) return std::nullopt;
  ShardName shard{.prefix = std::string(name.substr(0, dash)), .total = std::string(total)};
  std::from_chars(number.data(), number.data() + number.size(), shard.number);
  return shard;
}

struct ShardSet {
  std::vector<std::string> files;
  std::set<unsigned long> numbers;
};
using ShardSets = std::map<std::pair<std::string, std::string>, ShardSet>;  // by prefix and total

void check_complete(const std::pair<std::string, std::string>& name, const ShardSet& set,
                    Problems& problems) {
  const unsigned long total = std::stoul(name.second);
  if (!set.numbers.empty() && *set.numbers.rbegin() > total) {
    problems.add(kHere, fmt::format("holds shard {} of {}: {}; leave one model's files",
                                    *set.numbers.rbegin(), total, quote_list(set.files)));
  }
  std::vector<std::string> missing;
  for (unsigned long i = 1; i <= total; ++i) {
    if (!set.numbers.contains(i)) {
      missing.push_back(fmt::format("{}-{:0{}}-of-{}.safetensors", name.first, i,
                                    name.second.size(), name.second));
    }
  }
  if (!missing.empty()) {
    problems.add(kHere, fmt::format("{} of {} numbered shards are missing: {}; download them",
                                    missing.size(), total, quote_list(missing, 1000)));
  }
}

std::optional<ShardIndex> read_index(int directory, Problems& problems) {
  const auto text = read_text_file(directory, std::string(kIndexName), kMaxIndexBytes, problems);
  if (!text) return std::nullopt;
  return parse_shard_index(*text, problems);
}

bool has_suffix(const std::vector<std::string>& entries, std::string_view suffix) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& name) { return name.ends_with(suffix); });
}

// Nothing here is safetensors: say what there is instead.
void no_weights(const std::vector<std::string>& entries, Problems& problems) {
  std::vector<std::string> pickles;
  for (const std::string& name : entries) {
    for (const std::string_view suffix : {".bin", ".pt", ".pth", ".ckpt"}) {
      if (name.ends_with(suffix)) pickles.push_back(name);
    }
  }
  if (!pickles.empty()) {
    problems.add(kHere,
                 fmt::format("holds pickled weights only ({}), and unpickling runs code from the "
                             "file; convert them with safetensors.torch.save_file, or take a "
                             "revision of the model that has .safetensors files",
                             quote_list(pickles)));
  } else if (has_suffix(entries, ".gguf")) {
    problems.add(kHere, "holds GGUF weights only; take the model's .safetensors files");
  } else {
    problems.add(kHere,
                 fmt::format("holds no .safetensors file (there {} {}); name the directory that "
                             "holds the weights",
                             entries.size() == 1 ? "is" : "are",
                             entries.empty() ? "no files" : quote_list(entries, 12)));
  }
}

}  // namespace

std::vector<std::string> list_directory(int directory, const std::string& path) {
  // A descriptor of its own: reading moves its offset.
  Fd fd = open_fd(directory, ".", O_RDONLY | O_DIRECTORY, 0, Errc::kCheckpoint);
  struct CloseDir {
    void operator()(DIR* d) const noexcept { ::closedir(d); }
  };
  const std::unique_ptr<DIR, CloseDir> dir(::fdopendir(fd.get()));
  if (!dir) {
    throw Error(Errc::kCheckpoint, fmt::format("cannot list '{}': {}", path, errno_text(errno)));
  }
  (void)fd.release();
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    if (const std::string_view name = entry->d_name; name != "." && name != "..") {
      names.emplace_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> weights_by_name(const std::vector<std::string>& entries,
                                         std::vector<std::string>& warnings, Problems& problems) {
  std::vector<std::string> all;
  ShardSets sets;
  for (const std::string& name : entries) {
    if (!name.ends_with(".safetensors")) continue;
    all.push_back(name);
    if (const auto shard = parse_shard_name(name)) {
      ShardSet& set = sets[{shard->prefix, shard->total}];
      set.files.push_back(name);
      set.numbers.insert(shard->number);
    }
  }
  if (std::find(all.begin(), all.end(), kSingle) != all.end()) return {std::string(kSingle)};
  if (sets.size() == 1) {
    const auto& [name, set] = *sets.begin();
    check_complete(name, set, problems);
    warnings.push_back(fmt::format("{} {}-*-of-{}.safetensors taken by their names",
                                   counted(set.files.size(), "numbered shard"), name.first,
                                   name.second));
    return set.files;
  }
  if (all.size() == 1) return all;
  if (all.empty()) {
    no_weights(entries, problems);
  } else {
    problems.add(kHere, fmt::format("holds several safetensors files and no {} to say which belong "
                                    "together: {}; download the index, or leave one model's files",
                                    kIndexName, quote_list(all)));
  }
  return {};
}

namespace {

// Numbered shards that lie beside the index's and belong to them by their names, but that it names
// nowhere: what it says of them is wrong, or nothing.
std::vector<std::string> unnamed_shards(const std::vector<std::string>& named,
                                        const std::vector<std::string>& entries) {
  std::set<std::pair<std::string, std::string>> sets;
  for (const std::string& name : named) {
    if (const auto shard = parse_shard_name(name)) sets.emplace(shard->prefix, shard->total);
  }
  std::vector<std::string> found;
  for (const std::string& name : entries) {
    const auto shard = parse_shard_name(name);
    if (shard && sets.contains({shard->prefix, shard->total}) &&
        std::find(named.begin(), named.end(), name) == named.end()) {
      found.push_back(name);
    }
  }
  return found;
}

}  // namespace

WeightSelection select_weights(int directory, const std::vector<std::string>& entries,
                               bool rebuild_index, Problems& problems) {
  WeightSelection selection;
  if (!std::binary_search(entries.begin(), entries.end(), std::string(kIndexName))) {
    selection.files = weights_by_name(entries, selection.warnings, problems);
    return selection;
  }
  Problems index_problems;
  selection.index = read_index(directory, index_problems);
  if (selection.index) {
    selection.files = selection.index->files();
    for (std::string& name : unnamed_shards(selection.files, entries)) {
      selection.files.push_back(std::move(name));
    }
    selection.rebuilt =
        rebuild_index &&
        std::any_of(selection.files.begin(), selection.files.end(), [&](const std::string& name) {
          return ::faccessat(directory, name.c_str(), F_OK, 0) != 0;
        });
  } else {
    selection.rebuilt = rebuild_index;
    if (rebuild_index) {
      selection.warnings.push_back(
          fmt::format("{} cannot be used: tensors taken from the headers", kIndexName));
    }
  }
  if (selection.rebuilt) {
    selection.files = weights_by_name(entries, selection.warnings, problems);
  } else {
    problems.merge(kIndexName, index_problems);
  }
  return selection;
}

}  // namespace preload
