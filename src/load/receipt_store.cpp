// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.hpp"
#include "base/fd.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "load/cache_dir.hpp"
#include "load/hash_files.hpp"

namespace preload {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr std::size_t kMaxEntryBytes = 256 * kMiB;

// What makes a file the one that was read, sorted by name.
Json receipts_of(const Checkpoint& checkpoint) {
  Json receipts = Json::array();
  for (const SourceFile& file : checkpoint.files) {
    receipts.push_back({file.name, file.bytes, file.inode, file.mtime_ns, file.ctime_ns});
  }
  std::sort(receipts.begin(), receipts.end());
  return receipts;
}

std::string entry_name(const Json& receipts) { return sha256_hex(receipts.dump()) + ".json"; }

// The hashes by tensor name of an entry that fits these receipts; an empty object otherwise.
Json read_entry(int store, const Json& receipts) {
  const auto text = read_file_at(store, entry_name(receipts), kMaxEntryBytes);
  if (!text) return Json::object();
  const Json entry = Json::parse(*text, nullptr, false);
  if (!entry.is_object() || entry.value("version", 0) != kVersion ||
      entry.value("files", Json()) != receipts || !entry.contains("hashes") ||
      !entry.at("hashes").is_object()) {
    return Json::object();
  }
  return entry.at("hashes");
}

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Whether the receipts prove anything: the files are still those that were read, and none is so
// young that a later write could have left its time stamps as they are.
bool receipts_hold(const Checkpoint& checkpoint) {
  constexpr std::int64_t kFineNs = 100'000'000;      // above any kernel's clock tick
  constexpr std::int64_t kCoarseNs = 2'000'000'000;  // file systems that keep whole seconds
  timespec clock{};
  ::clock_gettime(CLOCK_REALTIME, &clock);
  const std::int64_t now = nanoseconds(clock);
  return std::all_of(checkpoint.files.begin(), checkpoint.files.end(), [&](const SourceFile& f) {
    struct stat status {};
    if (::stat((checkpoint.directory + "/" + f.name).c_str(), &status) != 0) return false;
    const std::int64_t age = now - std::max(f.mtime_ns, f.ctime_ns);
    const std::int64_t settled = f.ctime_ns % 1'000'000'000 == 0 ? kCoarseNs : kFineNs;
    return static_cast<std::uint64_t>(status.st_size) == f.bytes && status.st_ino == f.inode &&
           nanoseconds(status.st_mtim) == f.mtime_ns && nanoseconds(status.st_ctim) == f.ctime_ns &&
           age > settled;
  });
}

}  // namespace

std::optional<std::vector<SourceHash>> recall_hashes(const Checkpoint& checkpoint) try {
  const Fd store = open_cache_dir("hashes", false);
  if (!store) return std::nullopt;
  const Json hashes = read_entry(store.get(), receipts_of(checkpoint));
  std::vector<SourceHash> known;
  for (std::uint32_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const auto entry = hashes.find(checkpoint.tensors[i].name);
    if (entry == hashes.end() || !entry->is_string()) continue;
    if (const auto hash = hash_from_hex(entry->get_ref<const std::string&>())) {
      known.push_back({i, *hash});
    }
  }
  if (known.empty()) return std::nullopt;
  return known;
} catch (const std::exception& error) {
  log::debug(fmt::format("receipt store not read: {}", error.what()));
  return std::nullopt;
}

void remember_hashes(const Checkpoint& checkpoint, const std::vector<SourceHash>& hashes) try {
  if (hashes.empty() || !receipts_hold(checkpoint)) return;
  const Fd store = open_cache_dir("hashes", true);
  if (!store) return;
  const Json receipts = receipts_of(checkpoint);
  // Another layout may have consumed other tensors of the same files.
  Json known = read_entry(store.get(), receipts);
  const std::size_t before = known.size();
  bool changed = false;
  for (const SourceHash& hash : hashes) {
    Json& entry = known[checkpoint.tensors.at(hash.source).name];
    const std::string hex = to_hex(hash.hash);
    changed = changed || entry != hex;
    entry = hex;
  }
  if (!changed && known.size() == before) return;
  const Json entry{{"version", kVersion}, {"files", receipts}, {"hashes", std::move(known)}};
  write_file_at(store.get(), entry_name(receipts), entry.dump());
} catch (const std::exception& error) {
  log::debug(fmt::format("receipt store not written: {}", error.what()));
}

}  // namespace preload
