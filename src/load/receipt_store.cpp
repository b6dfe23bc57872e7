// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/fd.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "load/cache_dir.hpp"
#include "load/hash_files.hpp"
#include "load/receipt.hpp"

namespace preload {

namespace {

using Json = nlohmann::json;

constexpr int kVersion = 3;
constexpr const char* kFolder = "hashes";
constexpr std::size_t kMaxEntryBytes = 256 * kMiB;
constexpr CacheLimits kLimits{.entries = 256, .bytes = kGiB};

// What makes files the ones that were read, by the file system's word.
Json stat_key(const Receipt& receipt) {
  Json files = Json::array();
  for (const FileReceipt& file : receipt) {
    files.push_back({file.name, file.bytes, file.inode, file.mtime_ns, file.ctime_ns});
  }
  return files;
}

std::string entry_name(const Json& key) { return sha256_hex(key.dump()) + ".json"; }

// The hashes by tensor name of an entry that fits the key; an empty object otherwise.
Json read_entry(int store, const Json& key) {
  const auto text = read_file_at(store, entry_name(key), kMaxEntryBytes);
  if (!text) return Json::object();
  const Json entry = Json::parse(*text, nullptr, false);
  if (!entry.is_object() || entry.value("version", 0) != kVersion ||
      entry.value("files", Json()) != key || !entry.contains("hashes") ||
      !entry.at("hashes").is_object()) {
    return Json::object();
  }
  return entry.at("hashes");
}

std::vector<SourceHash> recall_under(int store, const Json& key, const Checkpoint& checkpoint) {
  const Json hashes = read_entry(store, key);
  std::vector<SourceHash> known;
  if (hashes.empty()) return known;
  for (std::uint32_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const auto entry = hashes.find(checkpoint.tensors[i].name);
    if (entry == hashes.end() || !entry->is_string()) continue;
    if (const auto hash = hash_from_hex(entry->get_ref<const std::string&>())) {
      known.push_back({i, *hash});
    }
  }
  if (!known.empty()) mark_used(store, entry_name(key));
  return known;
}

void remember_under(int store, const Json& key, const Checkpoint& checkpoint,
                    const std::vector<SourceHash>& hashes) {
  // Another layout may have consumed other tensors of the same files.
  Json known = read_entry(store, key);
  bool changed = false;
  for (const SourceHash& hash : hashes) {
    Json& entry = known[checkpoint.tensors.at(hash.source).name];
    const std::string hex = to_hex(hash.hash);
    changed = changed || entry != hex;
    entry = hex;
  }
  if (!changed) return;
  const Json entry{{"version", kVersion}, {"files", key}, {"hashes", std::move(known)}};
  write_file_at(store, entry_name(key), entry.dump());
  prune_cache(store, kLimits);
}

}  // namespace

std::optional<std::vector<SourceHash>> recall_hashes(const Checkpoint& checkpoint) try {
  const Fd store = open_cache_dir(kFolder, false);
  if (!store) return std::nullopt;
  const Receipt receipt = take_receipt(checkpoint);
  std::vector<SourceHash> known = recall_under(store.get(), stat_key(receipt), checkpoint);
  if (known.empty()) return std::nullopt;
  return known;
} catch (const std::exception& error) {
  log::debug(fmt::format("receipt store not read: {}", error.what()));
  return std::nullopt;
}

void remember_hashes(const Checkpoint& checkpoint, const std::vector<SourceHash>& hashes) try {
  const Receipt receipt = take_receipt(checkpoint);
  if (hashes.empty() || !std::ranges::all_of(receipt, &FileReceipt::settled)) return;
  const Fd store = open_cache_dir(kFolder, true);
  if (!store) return;
  remember_under(store.get(), stat_key(receipt), checkpoint, hashes);
} catch (const std::exception& error) {
  log::debug(fmt::format("receipt store not written: {}", error.what()));
}

}  // namespace preload
