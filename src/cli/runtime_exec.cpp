// SPDX-License-Identifier: Apache-2.0
#include "cli/runtime_exec.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace preload::cli {
namespace {

// The directory of this executable, wherever it was started from.
std::string own_directory() {
  std::array<char, 4096> path{};
  const long length =
      check_sys(::readlink("/proc/self/exe", path.data(), path.size()), "readlink /proc/self/exe");
  const std::string whole(path.data(), static_cast<std::size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

std::vector<std::string> runtime_candidates() {
  if (const char* given = std::getenv("PRELOAD_RUNTIME"); given != nullptr && *given != '\0') {
    return {given};
  }
  const std::string directory = own_directory();
  return {directory + "/preload-runtime", directory + "/../libexec/preload/preload-runtime"};
}

}  // namespace

std::optional<std::string> find_runtime() {
  for (const std::string& path : runtime_candidates()) {
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return std::nullopt;
}

void exec_runtime(const Arguments& arguments) {
  std::string tried;
  for (const std::string& path : runtime_candidates()) {
    std::vector<std::string> copy{path};
    copy.insert(copy.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : copy) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(path.c_str(), argv.data());
    tried += fmt::format("\n  {}: {}", path, errno_text(errno));
  }
  throw Error(Errc::kUsage,
              "the runtime that loads, serves and measures was not found; install it beside this "
              "program or "
              "set PRELOAD_RUNTIME to its path. Tried:" +
                  tried);
}

}  // namespace preload::cli
