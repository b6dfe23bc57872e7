// SPDX-License-Identifier: Apache-2.0
#include "artifact/disk_entry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "artifact/content_hash.hpp"
#include "artifact/disk_folder.hpp"

namespace preload::artifact {
namespace {

constexpr std::size_t kMaxRecordBytes = 1 << 20;

std::optional<DiskRecord> read_record(int folder, const std::string& name) {
  const auto text = read_file_at(folder, name, kMaxRecordBytes);
  return text ? record_from_json(*text) : std::nullopt;
}

// What the record of a damaged content says it should be.
std::string describe_damage(int folder, const std::string& filename, std::uint64_t bytes) {
  bool recorded = false;
  for (const std::string& name : names_in(folder)) {
    if (!is_record_of(name, filename)) continue;
    recorded = true;
    const auto record = read_record(folder, name);
    if (!record) return "its record is damaged";
    if (record->bytes != bytes) {
      return fmt::format("it has {} of the {} bytes that were written", bytes, record->bytes);
    }
  }
  return recorded ? "its content is not the one that was written" : "nothing is recorded of it";
}

DiskEntry read_once(int folder, const std::string& filename, const Cancel* cancel) {
  DiskEntry entry;
  const int raw =
      ::openat(folder, filename.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (raw < 0 && errno == ENOENT) return entry;
  check_sys(raw, fmt::format("cannot open '{}'", filename));
  entry.content = Fd(raw);
  entry.state = DiskEntry::State::kDamaged;
  struct stat status {};
  check_sys(::fstat(raw, &status), fmt::format("cannot stat '{}'", filename));
  if (!S_ISREG(status.st_mode)) {
    entry.problem = "it is no regular file";
    return entry;
  }
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  const std::string sha256 = content_hash(raw, fmt::format("'{}'", filename), cancel, bytes);
  auto record = read_record(folder, record_name(filename, sha256));
  if (!record || record->bytes != bytes || record->sha256 != sha256) {
    entry.problem = describe_damage(folder, filename, bytes);
    return entry;
  }
  entry.state = DiskEntry::State::kGood;
  entry.record = std::move(*record);
  return entry;
}

}  // namespace

DiskEntry read_entry(int folder, const std::string& filename, const Cancel* cancel) {
  DiskEntry entry = read_once(folder, filename, cancel);
  // A writer that replaces it takes the old record away after the new content is there.
  if (entry.state == DiskEntry::State::kDamaged) entry = read_once(folder, filename, cancel);
  return entry;
}

DiskEntry renew_entry(int folder, const std::string& filename, DiskEntry known,
                      const Cancel* cancel) {
  struct stat now {};
  struct stat then {};
  const bool there = ::fstatat(folder, filename.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0;
  if (!there && known.state == DiskEntry::State::kAbsent) return known;
  const bool same = there && known.content && ::fstat(known.content.get(), &then) == 0 &&
                    now.st_ino == then.st_ino && now.st_dev == then.st_dev;
  return same ? std::move(known) : read_entry(folder, filename, cancel);
}

std::optional<DiskRecord> other_environment(int folder, const std::string& filename) {
  std::optional<DiskRecord> latest;
  const std::vector<std::string> names = names_in(folder);
  for (const std::string& other : names) {
    if (other == filename || !same_but_environment(filename, other)) continue;
    for (const std::string& name : names) {
      if (!is_record_of(name, other)) continue;
      auto record = read_record(folder, name);
      if (record && (!latest || record->created > latest->created)) latest = std::move(record);
    }
  }
  return latest;
}

void mark_entry_used(int folder, const std::string& filename, const std::string& sha256) noexcept {
  // At worst it goes earlier than it should.
  ::utimensat(folder, record_name(filename, sha256).c_str(), nullptr, 0);
}

void remove_entry(int folder, const std::string& filename) noexcept {
  ::unlinkat(folder, filename.c_str(), 0);
  remove_other_records(folder, filename, {});
}

void remove_other_records(int folder, const std::string& filename,
                          const std::string& sha256) noexcept try {
  const std::string kept = sha256.empty() ? std::string() : record_name(filename, sha256);
  for (const std::string& name : names_in(folder)) {
    if (name != kept && is_record_of(name, filename)) ::unlinkat(folder, name.c_str(), 0);
  }
} catch (const std::exception&) {
  // It is no entry without its content.
}

}  // namespace preload::artifact
