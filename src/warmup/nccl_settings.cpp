// SPDX-License-Identifier: Apache-2.0
#include "warmup/nccl_settings.hpp"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string_view>

#include "base/environment.hpp"

namespace preload::warmup {
namespace {

constexpr std::string_view kPrefix = "NCCL_";
constexpr std::size_t kLongest = 1023;  // of a name and of a value, as NCCL cuts them

// A line is NAME=VALUE, nothing trimmed, or a comment.
void add(std::map<std::string, std::string>& settings, std::string_view line) {
  const std::size_t equals = line.find('=');
  if (line.starts_with('#') || equals == std::string_view::npos) return;
  const std::string_view name = line.substr(0, equals).substr(0, kLongest);
  if (!name.starts_with(kPrefix)) return;
  settings.emplace(name, line.substr(equals + 1).substr(0, kLongest));
}

std::filesystem::path home() {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  const bool known = ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 &&
                     found != nullptr && found->pw_dir != nullptr;
  return known ? found->pw_dir : "";
}

}  // namespace

std::vector<std::filesystem::path> nccl_conf_files() {
  std::vector<std::filesystem::path> files;
  if (const std::string named = environment("NCCL_CONF_FILE"); !named.empty()) {
    files.emplace_back(named);
  } else if (const std::filesystem::path directory = home(); !directory.empty()) {
    files.push_back(directory / ".nccl.conf");
  }
  files.emplace_back("/etc/nccl.conf");
  return files;
}

std::map<std::string, std::string> nccl_settings(const std::vector<std::filesystem::path>& files) {
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : environment_variables()) {
    if (name.starts_with(kPrefix)) settings.emplace(name, value);
  }
  for (const std::filesystem::path& file : files) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) add(settings, line);
  }
  return settings;
}

}  // namespace preload::warmup
