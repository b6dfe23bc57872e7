// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace preload::cli {
namespace {

const std::vector<std::string>& known_peers() {
  static const std::vector<std::string> kNames = {"safetensors", "fastsafetensors",
                                                  "runai_model_streamer", "instanttensor"};
  return kNames;
}

std::vector<std::string> parse_peers(const std::string& text) {
  if (text == "auto") return known_peers();
  if (text == "none") return {};
  std::vector<std::string> peers;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (std::ranges::find(known_peers(), name) == known_peers().end()) {
      throw Error(Errc::kUsage, fmt::format("--peers must be auto, none or some of {}: '{}'",
                                            fmt::join(known_peers(), ","), name));
    }
    if (std::ranges::find(peers, name) == peers.end()) peers.push_back(name);
    begin = end + 1;
  }
  return peers;
}

void check_bench(const ParsedOptions& options) {
  if (options.positional().empty()) {
    throw Error(Errc::kUsage, "which bench? preload bench load --model DIR_OR_HF_ID");
  }
  if (options.positional().front() != "load") {
    throw Error(Errc::kUsage, fmt::format("unknown bench '{}'; the benches are load",
                                          options.positional().front()));
  }
}

}  // namespace

BenchLoadOptions parse_bench_options(const std::vector<std::string>& arguments) {
  const ParsedOptions options("bench", arguments);
  check_bench(options);
  BenchLoadOptions bench;
  bench.model = model_options(options);
  if (bench.model.model.empty()) {
    throw Error(Errc::kUsage, "--model is missing: give a checkpoint directory or a hub id");
  }
  bench.sizes = own_sizes(bench.model);
  bench.rank = rank_option(options, bench.sizes);
  bench.cuda = device_option(options);
  bench.ring_bytes = ring_bytes_option(options).value_or(bench.ring_bytes);
  bench.reader = reader_option(options);
  bench.threads = options.number("reader-threads", 1).value_or(0);
  bench.cold = options.has("cold");
  if (bench.cold && options.has("hot")) {
    throw Error(Errc::kUsage, "--hot and --cold exclude each other: measure them in two runs");
  }
  bench.runs = options.number("runs", 1).value_or(bench.runs);
  bench.peers = parse_peers(options.text("peers").value_or("auto"));
  bench.json = options.has("json");
  return bench;
}

}  // namespace preload::cli
