// SPDX-License-Identifier: Apache-2.0
#include "bench/peers.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "bench/child_output.hpp"

namespace preload::bench {

namespace {

// A loader that does less than this is given up.
constexpr std::uint64_t kSlowestBytesPerSecond = 100'000'000;
constexpr std::uint64_t kStartSeconds = 180;  // imports, a CUDA context
constexpr std::uint64_t kMostWays = 2;        // to call one peer

std::string interpreter() {
  const std::string given = environment("PRELOAD_PYTHON");
  return given.empty() ? "python3" : given;
}

// The Python package of this build or installation, before what the user's PYTHONPATH gives.
std::string python_path() {
  std::error_code error;
  const std::filesystem::path directory =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string path;
  for (const char* relative : {"python", PRELOAD_PYTHON_FROM_RUNTIME}) {
    const std::filesystem::path candidate = (directory / relative).lexically_normal();
    if (std::filesystem::exists(candidate / "preload" / "bench_peers.py", error)) {
      path = candidate;
      break;
    }
  }
  const std::string given = environment("PYTHONPATH");
  if (given.empty()) return path;
  return path.empty() ? given : path + ":" + given;
}

std::uint64_t limit_seconds(const PeerRequest& request, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const SourceFile& file : checkpoint.files) bytes += file.bytes;
  const auto passes = static_cast<std::uint64_t>(request.runs) + 1;
  return kStartSeconds + passes * bytes / kSlowestBytesPerSecond;
}

}  // namespace

std::vector<PeerFigures> measure_peers(const PeerRequest& request, const Checkpoint& checkpoint) {
  if (request.names.empty()) return {};
  const std::uint64_t limit_s = limit_seconds(request, checkpoint);
  std::vector<std::string> command = {
      interpreter(),
      "-m",
      "preload.bench_peers",
      fmt::format("--peers={}", fmt::join(request.names, ",")),
      fmt::format("--device={}", request.cuda ? fmt::format("cuda:{}", request.device) : "cpu"),
      fmt::format("--runs={}", request.runs),
      fmt::format("--limit-s={}", limit_s)};
  if (request.cold) command.push_back("--cold");
  command.push_back("--");
  for (const SourceFile& file : checkpoint.files) {
    command.push_back(checkpoint.directory + "/" + file.name);
  }
  const std::uint64_t all_s = limit_s * kMostWays * request.names.size() + kStartSeconds;
  try {
    return parse_peers(
        child_output(command, {{"PYTHONPATH", python_path()}}, std::chrono::seconds(all_s)));
  } catch (const Error& error) {
    std::vector<PeerFigures> failed;
    for (const std::string& name : request.names) {
      failed.push_back({name, "", "", std::nullopt, std::nullopt,
                        fmt::format("{} (PRELOAD_PYTHON names the interpreter)", error.what()),
                        ""});
    }
    return failed;
  }
}

}  // namespace preload::bench
