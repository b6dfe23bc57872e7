// SPDX-License-Identifier: Apache-2.0
#include "base/host_limits.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace preload {

namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;  // "max"
  return value;
}

// The value of "key value" or "key: value kB" in a file of such lines.
std::optional<std::uint64_t> field_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// Where one hierarchy keeps limit and use: cgroup v2, or v1's memory controller.
struct Hierarchy {
  std::string mount;
  std::string path;  // of this process, from the mount
  const char* limit;
  const char* usage;
  const char* reclaimable;  // in memory.stat
};

std::optional<Hierarchy> find_hierarchy(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  std::optional<Hierarchy> found;
  while (std::getline(file, line)) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    // With commas on both sides, so that a name is found whole.
    std::string controllers(1, ',');
    controllers.append(line, first + 1, second - first - 1).push_back(',');
    const std::string path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) {
      return Hierarchy{"/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                       "memory.usage_in_bytes", "total_inactive_file"};
    }
    if (controllers == ",,") {
      found = Hierarchy{"/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"};
    }
  }
  return found;
}

void cap_by_cgroup(const std::string& root, const Hierarchy& hierarchy, const std::string& path,
                   HostMemory& memory) {
  const std::string shown = hierarchy.mount + (path == "/" ? "" : path);
  const std::string directory = root + shown;
  const auto limit = number_in(directory + "/" + hierarchy.limit);
  const auto usage = number_in(directory + "/" + hierarchy.usage);
  if (!limit || !usage) return;
  const auto cache = field_in(directory + "/memory.stat", hierarchy.reclaimable).value_or(0);
  const std::uint64_t held = *usage > cache ? *usage - cache : 0;
  const std::uint64_t available = *limit > held ? *limit - held : 0;
  if (available < memory.available_bytes) memory = {available, *limit, "cgroup " + shown};
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  const std::string base = root == "/" ? "" : root;
  const auto available = field_in(base + "/proc/meminfo", "MemAvailable:");
  const auto total = field_in(base + "/proc/meminfo", "MemTotal:");
  if (!available || !total) {
    throw Error(Errc::kMemory, "/proc/meminfo does not say how much memory is free: mount /proc");
  }
  HostMemory memory{*available * kKiB, *total * kKiB, "the machine"};
  const auto hierarchy = find_hierarchy(base);
  if (!hierarchy) return memory;
  // A limit may sit on any ancestor; inside a container the path may not be visible, its root is.
  std::string path = hierarchy->path;
  while (true) {
    cap_by_cgroup(base, *hierarchy, path, memory);
    const std::size_t slash = path.rfind('/');
    if (path.size() <= 1 || slash == std::string::npos) return memory;
    path.resize(std::max<std::size_t>(slash, 1));
  }
}

}  // namespace preload
