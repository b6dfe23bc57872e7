// SPDX-License-Identifier: Apache-2.0
#include "hook/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace preload::hook {
namespace {

struct Process {
  pid_t parent = 0;
  char state = '?';
};

// "42 (a name) S 1 …": the name may hold blanks and brackets.
std::optional<Process> parse_stat(std::string_view text) {
  const std::size_t name_end = text.rfind(')');
  if (name_end == text.npos || text.size() < name_end + 5) return std::nullopt;
  Process process;
  process.state = text[name_end + 2];
  const char* number = text.data() + name_end + 4;
  const auto [end, error] = std::from_chars(number, text.data() + text.size(), process.parent);
  if (error != std::errc{}) return std::nullopt;
  return process;
}

bool has_ended(const Process& process) noexcept {
  return process.state == 'Z' || process.state == 'X';
}

std::map<pid_t, Process> all_processes() {
  std::map<pid_t, Process> processes;
  const auto close = [](DIR* dir) { ::closedir(dir); };
  const std::unique_ptr<DIR, decltype(close)> proc(::opendir("/proc"), close);
  if (!proc) return processes;
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc{} || end != name.data() + name.size()) continue;
    try {
      const auto text = read_file_at(AT_FDCWD, "/proc/" + std::string(name) + "/stat");
      if (!text) continue;
      if (const auto process = parse_stat(*text)) processes.emplace(pid, *process);
    } catch (const Error&) {  // it has ended while we read
    }
  }
  return processes;
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  const std::map<pid_t, Process> processes = all_processes();
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, process] : processes) children.emplace(process.parent, pid);
  std::vector<pid_t> found{root};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  std::erase_if(found, [&](pid_t pid) { return has_ended(processes.at(pid)); });
  return found;
}

void signal_all(const std::vector<pid_t>& processes, int signal) noexcept {
  for (const pid_t pid : processes) ::kill(pid, signal);
}

}  // namespace preload::hook
