// SPDX-License-Identifier: Apache-2.0
#include "artifact/flashinfer_tables.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <span>

#include "artifact/disk_folder.hpp"
#include "artifact/staged_file.hpp"
#include "base/bytes.hpp"
#include "base/cancel.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"

namespace preload::artifact {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTable = "autotune_config";  // FlashInfer's own name has no s
constexpr std::string_view kExtension = ".json";
constexpr const char* kConfig = "config";
constexpr const char* kFolder = "folder";  // <version>/<architecture> below vLLM's cache root
constexpr const char* kTables = "flashinfer_autotune_cache";
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

// "dp0_rank3" in vLLM's name of a table, else the node's.
RankCoords rank_of(const std::string& name, const RankCoords& node_rank) {
  static const std::regex pattern(R"(autotune_configs?_dp(\d{1,6})_rank(\d{1,6})\.json)");
  std::smatch match;
  if (!std::regex_match(name, match, pattern)) return node_rank;
  RankCoords rank;
  rank.dp = std::stoi(match[1]);
  rank.global = std::stoi(match[2]);
  return rank;
}

// vLLM's own name of a table, of the entry of that name; "" where it is no such entry.
std::string table_of(const Key& key, const RankCoords& node_rank, const Environment& here) {
  const std::size_t tag = key.filename.find('.');
  const std::size_t end = tag == key.filename.npos ? tag : key.filename.find('.', tag + 1);
  if (end == key.filename.npos) return {};
  std::string name = key.filename.substr(end + 1);
  const bool ours = is_hash(key.config_hash) && is_table(name) &&
                    key.filename == rank_filename(rank_of(name, node_rank), here, name);
  return ours ? name : std::string();
}

fs::path expanded(const std::string& path) {
  if (!path.starts_with("~/")) return path;
  return fs::path(environment("HOME")) / path.substr(2);
}

// Folders of vLLM's hashes, each with what is to be recorded of it ("" for the one that was named).
std::map<std::string, fs::path> table_folders(const FlashinferPlace& place) {
  if (!place.named.empty()) return {{"", expanded(place.named)}};
  std::map<std::string, fs::path> folders;
  std::error_code error;
  const fs::path top = expanded(place.vllm_root) / kTables;
  if (place.vllm_root.empty() || !fs::is_directory(top, error)) return folders;
  for (const auto& version : fs::directory_iterator(top)) {
    if (!version.is_directory(error)) continue;
    for (const auto& architecture : fs::directory_iterator(version.path())) {
      if (!architecture.is_directory(error)) continue;
      folders.emplace(fs::relative(architecture.path(), top).string(), architecture.path());
    }
  }
  return folders;
}

bool is_version_and_architecture(const fs::path& folder) {
  return std::distance(folder.begin(), folder.end()) == 2 &&
         std::ranges::none_of(folder, [](const fs::path& part) {
           return part.empty() || part == "." || part == ".." || part == "/";
         });
}

// Where an entry's table goes; nothing when that was not recorded.
std::optional<fs::path> folder_for(const FlashinferPlace& place, const Entry& entry) {
  if (!place.named.empty()) return expanded(place.named);
  const auto label = entry.metadata.labels.find(kFolder);
  if (place.vllm_root.empty() || label == entry.metadata.labels.end() ||
      !is_version_and_architecture(label->second)) {
    return std::nullopt;
  }
  return expanded(place.vllm_root) / kTables / label->second;
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

std::size_t store_folder(Tier& tier, const fs::path& folder, const RankCoords& node_rank,
                         const Metadata& metadata) {
  std::size_t kept = 0;
  if (!fs::is_directory(folder)) return kept;
  const Fd root = open_fd(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
  for (const std::string& hash : names_in(root.get())) {
    const Fd leaf(is_hash(hash) ? ::openat(root.get(), hash.c_str(),
                                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                : -1);
    if (!leaf) continue;
    for (const std::string& name : names_in(leaf.get())) {
      if (!is_table(name)) continue;
      const Key key{std::string(kFlashinferAutotune), hash,
                    rank_filename(rank_of(name, node_rank), metadata.environment, name)};
      if (store_table(tier, leaf.get(), name, key, metadata)) ++kept;
    }
  }
  return kept;
}

}  // namespace

std::size_t store_flashinfer_tables(Tier& tier, const FlashinferPlace& place,
                                    const RankCoords& node_rank, const std::string& config,
                                    Metadata metadata) try {
  std::size_t kept = 0;
  metadata.labels[kConfig] = config;
  for (const auto& [recorded, folder] : table_folders(place)) {
    metadata.labels.erase(kFolder);
    if (!recorded.empty()) metadata.labels[kFolder] = recorded;
    kept += store_folder(tier, folder, node_rank, metadata);
  }
  return kept;
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("FlashInfer's tables are not kept: {}", error.what()));
  return 0;
}

std::size_t restore_flashinfer_tables(Tier& tier, const FlashinferPlace& place,
                                      const RankCoords& node_rank, const std::string& config,
                                      const Environment& here) try {
  std::size_t restored = 0;
  for (const Entry& entry : tier.list(kFlashinferAutotune)) {
    const auto label = entry.metadata.labels.find(kConfig);
    if (label == entry.metadata.labels.end() || label->second != config) continue;
    const std::string name = table_of(entry.key, node_rank, here);
    const auto folder = name.empty() ? std::nullopt : folder_for(place, entry);
    if (!folder || fs::exists(*folder / entry.key.config_hash / name)) continue;
    const auto found = tier.get(entry.key, here);
    if (!found) continue;
    std::error_code error;
    fs::create_directories(*folder, error);  // the open says what is wrong
    const Fd root = open_fd(AT_FDCWD, *folder, O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
    if (restore_table(root.get(), entry.key, name, found->text())) ++restored;
  }
  return restored;
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("FlashInfer's tables are not restored: {}", error.what()));
  return 0;
}

}  // namespace preload::artifact
