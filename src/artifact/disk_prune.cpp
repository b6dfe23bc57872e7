// SPDX-License-Identifier: Apache-2.0
#include "artifact/disk_prune.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "artifact/disk_entry.hpp"
#include "artifact/disk_folder.hpp"
#include "artifact/held_file.hpp"
#include "artifact/staged_file.hpp"

namespace preload::artifact {
namespace {

constexpr std::time_t kOrphanLifeS = 3600;  // of a record whose content is not there yet

bool is_orphan(int folder, const std::string& name, const std::vector<std::string>& names) {
  if (!name.starts_with('.') || !name.ends_with(".meta")) return false;
  if (std::ranges::any_of(names, [&](const std::string& other) {
        return !other.starts_with('.') && is_record_of(name, other);
      })) {
    return false;
  }
  struct stat status {};
  return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         status.st_mtim.tv_sec + kOrphanLifeS < ::time(nullptr);
}

// Of one <kind>/<config-hash>, given each.
void tidy_folder(int parent, const std::string& name) {
  const Fd folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder) return;
  remove_stale_temporaries(folder.get());
  const std::vector<std::string> names = names_in(folder.get());
  for (const std::string& file : names) {
    if (is_orphan(folder.get(), file, names)) ::unlinkat(folder.get(), file.c_str(), 0);
  }
  ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);  // stays where something is in it
}

void tidy_folders(int root) {
  for (const std::string& kind : names_in(root)) {
    const Fd folder(::openat(root, kind.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (kind.starts_with('.') || !folder) continue;
    for (const std::string& name : names_in(folder.get())) tidy_folder(folder.get(), name);
    ::unlinkat(root, kind.c_str(), AT_REMOVEDIR);
  }
}

// False where it is in use and stays.
bool remove_file(int root, const Key& key) {
  const Fd folder = open_folder(root, key, false);
  if (!folder) return true;
  const Removal removal = begin_removal(folder.get(), key.filename);
  if (removal.in_use) return false;
  remove_entry(folder.get(), key.filename);
  if (::faccessat(folder.get(), key.filename.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    throw Error(Errc::kUsage,
                fmt::format("'{}' cannot be removed: is the folder ours to write to?", key.text()));
  }
  return true;
}

}  // namespace

DiskTier::Pruned prune_files(int root, const PruneRule& rule) {
  std::vector<DiskFile> files = files_below(root, rule.selection.kind);
  std::erase_if(files, [&](const DiskFile& file) { return !rule.selection.chooses(file.key); });
  std::ranges::stable_sort(files, std::ranges::greater{}, &DiskFile::used);
  const std::time_t now = ::time(nullptr);
  DiskTier::Pruned pruned;
  std::uint64_t bytes = 0;
  std::size_t kept = 0;
  for (const DiskFile& file : files) {
    const bool old = rule.unused_s && file.used + *rule.unused_s < now;
    const bool damaged = rule.damaged && !file.record;
    const bool fits = !rule.limits || (rule.keep_latest && kept == 0) ||
                      (kept < rule.limits->entries && bytes + file.bytes <= rule.limits->bytes);
    const bool goes = rule.all || old || damaged || !fits;
    if (!goes || !remove_file(root, file.key)) {
      if (goes) pruned.in_use.push_back(file.key);
      bytes += file.bytes;
      ++kept;
      continue;
    }
    pruned.keys.push_back(file.key);
    pruned.bytes += file.bytes;
  }
  tidy_folders(root);
  return pruned;
}

}  // namespace preload::artifact
