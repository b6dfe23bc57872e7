// SPDX-License-Identifier: Apache-2.0
#include "doctor/user_checks.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.hpp"

namespace preload::doctor {
namespace {

constexpr const char* kCache = "cache";
constexpr const char* kTmpdir = "TMPDIR";
constexpr const char* kLibraryPath = "LD_LIBRARY_PATH";
// A socket's name has room for 107 bytes, of which engines use up to 40 behind TMPDIR.
constexpr std::size_t kLongTmpdir = 67;
constexpr std::size_t kManyEntries = 50;

std::string cache_root(const Variables& variables) {
  if (const auto root = variables.text("PRELOAD_CACHE_ROOT"); !root.empty()) return root;
  if (const auto root = variables.text("XDG_CACHE_HOME"); !root.empty()) return root + "/preload";
  if (const auto home = variables.text("HOME"); !home.empty()) return home + "/.cache/preload";
  return {};
}

// The nearest ancestor that is there.
std::string existing(std::string path) {
  struct stat status {};
  while (!path.empty() && ::stat(path.c_str(), &status) != 0) {
    const std::size_t slash = path.rfind('/');
    path.resize(slash == path.npos ? 0 : slash);
  }
  return path.empty() ? "/" : path;
}

// Why nothing can be made in a directory; empty when it can. Asks the file system, so that a
// read-only mount counts for root as well.
std::string why_not_writable(const std::string& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return errno_text(errno);
  if (!S_ISDIR(status.st_mode)) return "no directory";
  return ::access(directory.c_str(), W_OK) == 0 ? std::string() : errno_text(errno);
}

}  // namespace

Check check_cache(const Variables& variables) {
  const std::string root = cache_root(variables);
  constexpr const char* kRemedy = "set PRELOAD_CACHE_ROOT to a directory that can be written";
  if (root.empty()) {
    return warn(kCache,
                "neither PRELOAD_CACHE_ROOT, XDG_CACHE_HOME nor HOME says where: nothing is "
                "remembered between runs",
                kRemedy);
  }
  const std::string there = existing(root);
  if (const std::string why = why_not_writable(there); !why.empty()) {
    return warn(kCache,
                fmt::format("'{}' cannot be written ('{}': {}): nothing is remembered between runs",
                            root, there, why),
                kRemedy);
  }
  return ok(kCache, root);
}

Check check_tmpdir(const Variables& variables) {
  const std::string path = variables.text("TMPDIR");
  constexpr const char* kRemedy = "set TMPDIR to a short path on a local file system, such as /tmp";
  if (path.empty()) return ok(kTmpdir, "not set: /tmp");
  if (const std::string why = why_not_writable(path); !why.empty()) {
    return warn(kTmpdir, fmt::format("'{}': {}: MPI and engines may not start", path, why),
                kRemedy);
  }
  if (path.size() > kLongTmpdir) {
    return warn(
        kTmpdir,
        fmt::format("'{}' has {} characters: engines and MPI make sockets there, whose names "
                    "end at 107; preload's own do not depend on it",
                    path, path.size()),
        kRemedy);
  }
  return ok(kTmpdir, path);
}

Check check_library_path(const Variables& variables) {
  const std::string list = variables.text("LD_LIBRARY_PATH");
  if (list.empty()) return ok(kLibraryPath, "not set");
  const auto entries = static_cast<std::size_t>(std::ranges::count(list, ':')) + 1;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(':', begin), list.size());
    const std::string entry = list.substr(begin, end - begin);
    begin = end + 1;
    // A folder that this user may not search is none to the linker, too.
    if (entry.empty() || ::access((entry + "/libcuda.so.1").c_str(), F_OK) != 0) continue;
    if (entry.find("/stubs") != entry.npos) {
      return fail(
          kLibraryPath, Errc::kDevice,
          fmt::format("'{}' has the toolkit's stub of the driver, which no GPU answers to", entry),
          "take it out of LD_LIBRARY_PATH: stubs are for linking alone");
    }
  }
  if (entries > kManyEntries) {
    return warn(kLibraryPath,
                fmt::format("{} entries: every process looks for every library in each, on every "
                            "node",
                            entries),
                "unload modules that are not needed");
  }
  return ok(kLibraryPath, fmt::format("{} entries", entries));
}

}  // namespace preload::doctor
