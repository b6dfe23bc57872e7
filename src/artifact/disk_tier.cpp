// SPDX-License-Identifier: Apache-2.0
#include "artifact/disk_tier.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "artifact/disk_entry.hpp"
#include "artifact/disk_folder.hpp"
#include "artifact/disk_prune.hpp"
#include "artifact/staged_file.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "load/cache_dir.hpp"

namespace preload::artifact {
namespace {

using State = DiskEntry::State;

void log_unused(const Key& key, const std::string& why) {
  log::warn(fmt::format("artifact '{}' is not used: {}", key.text(), why));
}

// The folder goes when its last entry does, also between our making it and our first file in it.
class Staging {
 public:
  Staging(int root, const Key& key) {
    constexpr int kAttempts = 3;
    for (int i = 1; !file_; ++i) {
      try {
        folder_ = open_folder(root, key, true);
        file_.emplace(folder_.get());
      } catch (const Error&) {
        if (i == kAttempts) throw;
      }
    }
  }
  int folder() const noexcept { return folder_.get(); }
  StagedFile& file() noexcept { return *file_; }

 private:
  Fd folder_;
  std::optional<StagedFile> file_;
};

void write_record(int folder, const Key& key, const StagedFile::Copied& copied,
                  const Metadata& metadata) {
  const DiskRecord record{copied.bytes, copied.sha256, metadata, host_name(), ::time(nullptr)};
  StagedFile file(folder);
  const std::string text = to_json(record);
  write_full(file.fd(), std::as_bytes(std::span(text)), "the record");
  file.replace(record_name(key.filename, copied.sha256));
}

// What is stored is stored, tidied up or not.
void tidy(int root, const DiskLimits& limits) noexcept try {
  prune_files(root, {.limits = limits, .keep_latest = true, .damaged = false});
} catch (const std::exception& error) {
  log::debug(fmt::format("the artifacts were not tidied: {}", error.what()));
}

}  // namespace

DiskTier::DiskTier(const Cancel* cancel)
    : DiskTier(cache_path(std::string(kRoot)), DiskLimits{}, cancel) {}

DiskTier::DiskTier(std::string root, DiskLimits limits, const Cancel* cancel)
    : root_(std::move(root)), limits_(limits), cancel_(cancel) {}

std::optional<Found> DiskTier::get(const Key& key, const Environment& here) try {
  check_key(key);
  const Fd root = open_root(root_, false);
  const Fd folder = root ? open_folder(root.get(), key, false) : Fd();
  if (!folder) return std::nullopt;
  DiskEntry entry = read_entry(folder.get(), key.filename, cancel_);
  std::string other;
  if (entry.state == State::kAbsent) {
    if (const auto record = other_environment(folder.get(), key.filename)) {
      other = differences(record->metadata.environment, here);
    }
  } else if (entry.state == State::kGood) {
    other = differences(entry.record.metadata.environment, here);
  }
  if (entry.state == State::kDamaged) log_unused(key, entry.problem);
  if (!other.empty()) log_unused(key, fmt::format("it was made under another {}", other));
  if (entry.state != State::kGood || !other.empty()) return std::nullopt;
  mark_entry_used(folder.get(), key.filename, entry.record.sha256);
  Found found;
  found.entry = entry_of(key, std::move(entry.record), ::time(nullptr));
  found.content = std::move(entry.content);
  found.path = fmt::format("{}/{}/{}/{}", root_, key.kind, key.config_hash, key.filename);
  return found;
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log_unused(key, error.what());
  return std::nullopt;
}

Put DiskTier::put(const Key& key, int content, const Metadata& metadata, Overwrite overwrite) try {
  check_key(key);
  if (root_.empty()) {
    throw Error(Errc::kUsage,
                "none of PRELOAD_CACHE_ROOT, XDG_CACHE_HOME and HOME is set: set one");
  }
  const Fd root = open_root(root_, true);
  return publish(root.get(), key, content, metadata, overwrite);
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("artifact '{}' is not kept in '{}': {}", key.text(), root_, error.what()));
  return Put::kFailed;
}

Put DiskTier::publish(int root, const Key& key, int content, const Metadata& metadata,
                      Overwrite overwrite) const {
  Staging staging(root, key);
  const int folder = staging.folder();
  remove_stale_temporaries(folder);
  const StagedFile::Copied copied = staging.file().copy(content, cancel_);

  // Synced and read before others are kept waiting.
  staging.file().sync();
  DiskEntry read = read_entry(folder, key.filename, cancel_);
  const RootLock lock(root);
  const DiskEntry old = renew_entry(folder, key.filename, std::move(read), cancel_);
  if (old.state == State::kGood) {
    const std::string other = differences(old.record.metadata.environment, metadata.environment);
    if (other.empty() && old.record.sha256 == copied.sha256) {
      mark_entry_used(folder, key.filename, copied.sha256);
      return Put::kPresent;
    }
    if (!other.empty() || overwrite == Overwrite::kNever) {
      log::warn(fmt::format("artifact '{}' stays as it was written on {}: {}", key.text(),
                            old.record.host,
                            other.empty() ? "its content differs from ours"
                                          : fmt::format("it was made under another {}", other)));
      return Put::kConflict;
    }
  }
  write_record(folder, key, copied, metadata);
  if (old.state == State::kAbsent) {
    if (!staging.file().link_as(key.filename)) {
      // Only where locks do not work: somebody else was quicker.
      log::warn(fmt::format("artifact '{}' stays as another wrote it just now", key.text()));
      return Put::kConflict;
    }
  } else {
    staging.file().replace(key.filename);
  }
  ::fsync(folder);  // at worst a crash of the machine takes the entry along
  remove_other_records(folder, key.filename, copied.sha256);
  tidy(root, limits_);
  return Put::kStored;
}

std::vector<Entry> DiskTier::list(std::string_view kind) try {
  std::vector<Entry> entries;
  const Fd root = open_root(root_, false);
  if (!root) return entries;
  for (DiskFile& file : files_below(root.get(), kind)) {
    if (file.record) entries.push_back(entry_of(file.key, std::move(*file.record), file.used));
  }
  return entries;
} catch (const std::exception& error) {
  log::warn(fmt::format("the artifacts in '{}' cannot be listed: {}", root_, error.what()));
  return {};
}

DiskTier::Checked DiskTier::check(const Selection& selection) const {
  Checked checked;
  const Fd root = open_root(root_, false);
  if (!root) return checked;
  for (const DiskFile& file : files_below(root.get(), selection.kind)) {
    const Fd folder = selection.chooses(file.key) ? open_folder(root.get(), file.key, false) : Fd();
    if (!folder) continue;
    DiskEntry entry = read_entry(folder.get(), file.key.filename);
    if (entry.state == State::kAbsent) continue;  // just removed
    ++checked.entries;
    if (entry.state == State::kDamaged) {
      checked.damages.push_back({file.key, std::move(entry.problem)});
    }
  }
  return checked;
}

DiskTier::Pruned DiskTier::prune(const PruneRule& rule) const {
  const Fd root = open_root(root_, false);
  if (!root) return {};
  try {
    const RootLock lock(root.get());
    return prune_files(root.get(), rule);
  } catch (const Error& error) {
    throw Error(Errc::kUsage, fmt::format("'{}' cannot be tidied: {}", root_, error.what()));
  }
}

bool Selection::chooses(const Key& key) const {
  return (kind.empty() || kind == key.kind) &&
         (keys.empty() || std::ranges::find(keys, key) != keys.end());
}

}  // namespace preload::artifact
