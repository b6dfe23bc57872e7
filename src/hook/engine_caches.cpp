// SPDX-License-Identifier: Apache-2.0
#include "hook/engine_caches.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/trusted_folder.hpp"
#include "hook/environment.hpp"

namespace preload::hook {
namespace {

namespace fs = std::filesystem;

// The variables as their owners read them: vllm/envs.py, triton/knobs.py, torch/_inductor/runtime/
// cache_dir_utils.py, flashinfer/jit/env.py, DeepGEMM's csrc/jit/compiler.hpp, the CUDA driver.
constexpr auto kCaches = std::to_array<std::pair<const char*, const char*>>({
    {"VLLM_CACHE_ROOT", "vllm"},
    {"TRITON_CACHE_DIR", "triton"},
    {"TORCHINDUCTOR_CACHE_DIR", "inductor"},
    {"FLASHINFER_WORKSPACE_BASE", "flashinfer"},
    {"DG_JIT_CACHE_DIR", "deep_gemm"},
    {"CUDA_CACHE_PATH", "cuda"},
});

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// Engines run what lies there, and shells read environment.sh.
void require_trusted(const std::string& path) {
  struct stat status {};
  check_sys(::stat(path.c_str(), &status), fmt::format("cannot stat '{}'", path), Errc::kUsage);
  const std::string_view reason = untrusted_because(status);
  if (reason.empty()) return;
  throw Error(Errc::kUsage,
              fmt::format("'{}' {}, and what a warm-up leaves there is run: chmod o-w it, or name "
                          "another with --warmup-cache-dir",
                          path, reason));
}

void make_folder(const std::string& path) {
  std::error_code error;
  if (fs::create_directories(path, error)) {
    fs::permissions(path, fs::perms::others_write, fs::perm_options::remove, error);
  }
  if (!error && fs::is_directory(path)) return require_trusted(path);
  throw Error(Errc::kUsage,
              fmt::format("'{}' for what a warm-up leaves cannot be made: {}; choose another with "
                          "--warmup-cache-dir",
                          path, error ? error.message() : "no directory"));
}

}  // namespace

std::string caches_folder(const std::string& root) { return root + "/caches"; }

std::vector<EngineCache> engine_caches(const std::string& root,
                                       const std::vector<std::string>& inherited) {
  std::vector<EngineCache> caches;
  for (const auto& [variable, folder] : kCaches) {
    const std::string given = value_of(inherited, variable);
    caches.push_back(
        {variable, given.empty() ? caches_folder(root) + "/" + folder : given, !given.empty()});
  }
  return caches;
}

std::string folder_of(const std::vector<EngineCache>& caches, std::string_view variable) {
  const auto found = std::ranges::find(caches, variable, &EngineCache::variable);
  return found == caches.end() ? std::string() : found->folder;
}

std::string prepare(const std::string& root, const std::vector<EngineCache>& caches,
                    const std::map<std::string, std::string>& more) {
  make_folder(root);
  make_folder(caches_folder(root));
  std::string text = "# Where engines find what a warm-up has compiled and tuned for them.\n";
  for (const EngineCache& cache : caches) {
    if (!cache.given) make_folder(cache.folder);
    text += fmt::format("export {}={}\n", cache.variable, quoted(cache.folder));
  }
  for (const auto& [variable, value] : more) {
    text += fmt::format("export {}={}\n", variable, quoted(value));
  }
  const Fd folder = open_fd(AT_FDCWD, root, O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
  write_file_at(folder.get(), "environment.sh", text);
  return root + "/environment.sh";
}

}  // namespace preload::hook
