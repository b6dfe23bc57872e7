// SPDX-License-Identifier: Apache-2.0
#include "run/warmup_artifacts.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>

#include "artifact/config_hash.hpp"
#include "artifact/environment.hpp"
#include "artifact/flashinfer_tables.hpp"
#include "artifact/local_environment.hpp"
#include "artifact/tree_store.hpp"
#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "hook/engine_packages.hpp"
#include "run/warmup_facts.hpp"

namespace preload::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTree = "engine-caches.json";
constexpr std::size_t kFolderDigits = 16;
constexpr std::size_t kEnvironmentDigits = 8;

std::string configuration(const cli::ServeOptions& options, const Launch& launch,
                          const RankPlan& plan) {
  artifact::JobFields fields = artifact::job_fields(
      plan.checkpoint.config_json, plan.model.hf_overrides, plan.model.layout, launch.sizes);
  fields["warmup_command"] = options.warmup.command;
  for (const auto& [name, value] : hook::engine_settings(options.warmup.inherited)) {
    fields[name] = value;
  }
  for (const hook::EngineCache& cache : hook::engine_caches({}, options.warmup.inherited)) {
    if (cache.given) fields[cache.variable] = cache.folder;
  }
  fields["warmup_scope"] = cli::scope_name(options.warmup.scope);
  return artifact::config_hash(fields);
}

artifact::Environment environment_of(const cli::ServeOptions& options, const Launch& launch) {
  artifact::Environment here = artifact::local_environment(launch.device.device);
  for (const auto& [package, version] :
       hook::engine_packages(options.warmup.command, options.warmup.inherited)) {
    here[package] = version;
  }
  return here;
}

std::string choose_root(const cli::ServeOptions& options, const artifact::DiskTier& tier,
                        const std::string& config, const artifact::Environment& here) {
  if (!options.warmup.cache_dir.empty()) return options.warmup.cache_dir;
  if (tier.root().empty()) return {};
  const fs::path caches = fs::absolute(tier.root()).parent_path() / "engine-caches";
  // What another driver or engine has left would be packed and restored with it for ever.
  return (caches / fmt::format("{}-{}", config.substr(0, kFolderDigits),
                               artifact::environment_digest(here).substr(0, kEnvironmentDigits)))
      .string();
}

bool has_files(const std::string& folder) {
  std::error_code error;  // other jobs' engines make and remove files there meanwhile
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone)) return true;
  }
  return false;
}

}  // namespace

WarmupArtifacts::WarmupArtifacts(const cli::ServeOptions& options, const Launch& launch,
                                 const RankPlan& plan, const Cancel& cancel)
    : cancel_(cancel),
      given_(!options.warmup.cache_dir.empty()),
      node_rank_(coords_of(first_of_node(launch, launch.coords.global), launch.sizes)),
      model_(options.model.model),
      config_(configuration(options, launch, plan)),
      tier_(&cancel),
      here_(environment_of(options, launch)),
      reference_{std::string(artifact::kCompileCache), config_,
                 artifact::rank_filename(node_rank_, here_, kTree)},
      root_(choose_root(options, tier_, config_, here_)) {
  if (root_.empty()) return;
  const std::vector<std::string>& inherited = options.warmup.inherited;
  caches_ = hook::engine_caches(root_, inherited);
  flashinfer_ = {hook::value_of(inherited, "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"),
                 hook::folder_of(caches_, "VLLM_CACHE_ROOT")};
  marker_ = fmt::format("{}/warmed-{}", root_, reference_.filename);
}

bool WarmupArtifacts::prepare(const std::map<std::string, std::string>& more) {
  if (root_.empty()) {
    log::warn(
        "nothing says where a warm-up's results are to be kept (PRELOAD_CACHE_ROOT, XDG_CACHE_HOME "
        "and HOME are not set): name a directory with --warmup-cache-dir");
    return false;
  }
  try {
    hook::prepare(root_, caches_, more);
    return true;
  } catch (const std::exception& error) {
    if (given_) throw;
    log::warn(error.what());
    return false;
  }
}

// Folders that the user has named are in no bundle: those in use are to be as full as they were.
std::string WarmupArtifacts::marker_text() const {
  std::string text = reference_.text();
  for (const hook::EngineCache& cache : caches_) {
    if (cache.given && has_files(cache.folder)) text += "\n" + cache.folder;
  }
  return text;
}

// What is there already need not be unpacked.
bool WarmupArtifacts::is_marked() const {
  try {
    const auto marked = read_file_at(AT_FDCWD, marker_);
    return marked == marker_text() && has_files(hook::caches_folder(root_));
  } catch (const Error&) {
    return false;
  }
}

void WarmupArtifacts::mark() const {
  try {
    const fs::path path(marker_);
    const Fd folder =
        open_fd(AT_FDCWD, path.parent_path().string(), O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
    write_file_at(folder.get(), path.filename().string(), marker_text());
  } catch (const Error& error) {
    log::warn(fmt::format("the next start will warm up again: {}", error.what()));
  }
}

bool WarmupArtifacts::find() try {
  if (!artifact::is_known(here_) || !find_tree()) return false;
  artifact::restore_flashinfer_tables(tier_, flashinfer_, node_rank_, config_, here_);
  return true;
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("the warm-up runs again, since '{}' cannot be looked at: {}", root_,
                        error.what()));
  return false;
}

bool WarmupArtifacts::find_tree() {
  if (is_marked()) {
    log::info(fmt::format("warm-up: what it would leave is in {}", hook::caches_folder(root_)));
    return true;
  }
  if (std::ranges::any_of(caches_, &hook::EngineCache::given)) return false;
  const auto restored =
      artifact::restore_tree(tier_, reference_, here_, hook::caches_folder(root_), {}, &cancel_);
  if (!restored) return false;
  log::info(fmt::format("warm-up: restored {} ({}) to {}", counted(restored->files, "file"),
                        format_bytes(restored->bytes), hook::caches_folder(root_)));
  mark();
  return true;
}

void WarmupArtifacts::store() try {
  if (!has_files(hook::caches_folder(root_))) {
    log::info(
        fmt::format("warm-up: nothing was left in {}: the next start will run the command "
                    "again",
                    hook::caches_folder(root_)));
    return;
  }
  artifact::Metadata metadata{here_, {{"model", model_}, {"config", config_}, {"tree", kTree}}};
  artifact::store_tree(tier_, reference_, hook::caches_folder(root_), metadata, {}, &cancel_);
  artifact::store_flashinfer_tables(tier_, flashinfer_, node_rank_, config_, metadata);
  mark();
} catch (const Cancelled&) {
  throw;
} catch (const std::exception& error) {
  log::warn(fmt::format("what the warm-up left in '{}' is not kept: {}", root_, error.what()));
}

}  // namespace preload::run
