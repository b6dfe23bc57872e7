// SPDX-License-Identifier: Apache-2.0
#include "artifact/flashinfer_tables.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "artifact/disk_folder.hpp"
#include "artifact/staged_file.hpp"
#include "base/bytes.hpp"
#include "base/log.hpp"

namespace preload::artifact {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTable = "autotune_config";  // FlashInfer's own name has no s
constexpr std::string_view kExtension = ".json";
constexpr const char* kConfig = "config";
constexpr std::size_t kMaxTableBytes = 64 * kMiB;
constexpr std::size_t kHashDigits = 64;

bool is_hash(std::string_view name) {
  return name.size() == kHashDigits && std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_table(std::string_view name) {
  return name.starts_with(kTable) && name.ends_with(kExtension);
}

// An object of FlashInfer's; a file that vLLM is about to write is none.
bool holds_table(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false).is_object();
}

bool store_table(Tier& tier, int folder, const std::string& name, const Key& key,
                 const Metadata& metadata) {
  const auto text = read_file_at(folder, name, kMaxTableBytes);
  if (!text || !holds_table(*text)) {
    log::warn(
        fmt::format("'{}/{}' is no table of FlashInfer's and is not kept", key.config_hash, name));
    return false;
  }
  const Put put = tier.put_bytes(key, *text, metadata, Overwrite::kSameEnvironment);
  return put == Put::kStored || put == Put::kPresent;
}

// As vLLM writes it: a temporary file, then its name.
bool restore_table(int root, const Key& key, const std::string& name, const std::string& text) {
  if (::mkdirat(root, key.config_hash.c_str(), 0777) != 0 && errno != EEXIST) {
    check_sys(-1, fmt::format("cannot make '{}'", key.config_hash));
  }
  const Fd folder =
      open_fd(root, key.config_hash, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, Errc::kUsage);
  remove_stale_temporaries(folder.get());
  StagedFile file(folder.get());
  write_full(file.fd(), std::as_bytes(std::span(text)), fmt::format("'{}'", name));
  return file.link_as(name);
}

}  // namespace

std::size_t store_flashinfer_tables(Tier& tier, const std::string& folder, const RankCoords& rank,
                                    const std::string& config, Metadata metadata) try {
  std::size_t kept = 0;
  if (!fs::is_directory(folder)) return kept;
  metadata.labels[kConfig] = config;
  const Fd root = open_fd(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
  for (const std::string& hash : names_in(root.get())) {
    const Fd leaf(is_hash(hash) ? ::openat(root.get(), hash.c_str(),
                                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                : -1);
    if (!leaf) continue;
    for (const std::string& name : names_in(leaf.get())) {
      if (!is_table(name)) continue;
      const Key key{std::string(kFlashinferAutotune), hash,
                    rank_filename(rank, metadata.environment, name)};
      if (store_table(tier, leaf.get(), name, key, metadata)) ++kept;
    }
  }
  return kept;
} catch (const std::exception& error) {
  log::warn(fmt::format("FlashInfer's tables in '{}' are not kept: {}", folder, error.what()));
  return 0;
}

std::size_t restore_flashinfer_tables(Tier& tier, const std::string& folder, const RankCoords& rank,
                                      const std::string& config, const Environment& here) try {
  std::size_t restored = 0;
  for (const Entry& entry : tier.list(kFlashinferAutotune)) {
    const auto label = entry.metadata.labels.find(kConfig);
    const std::string own = rank_filename(rank, here, "");
    const bool ours = label != entry.metadata.labels.end() && label->second == config &&
                      is_hash(entry.key.config_hash) && entry.key.filename.starts_with(own) &&
                      is_table(std::string_view(entry.key.filename).substr(own.size()));
    if (!ours) continue;
    const auto found = tier.get(entry.key, here);
    if (!found) continue;
    std::error_code error;
    fs::create_directories(folder, error);  // the open says what is wrong
    const Fd root = open_fd(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
    const std::string name = entry.key.filename.substr(own.size());
    if (restore_table(root.get(), entry.key, name, found->text())) ++restored;
  }
  return restored;
} catch (const std::exception& error) {
  log::warn(fmt::format("FlashInfer's tables are not restored to '{}': {}", folder, error.what()));
  return 0;
}

}  // namespace preload::artifact
