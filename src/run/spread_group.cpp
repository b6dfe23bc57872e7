// SPDX-License-Identifier: Apache-2.0
#include "run/spread_group.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "comm/nccl_exchange.hpp"
#include "load/file_system.hpp"
#include "run/host_network.hpp"

namespace preload::run {
namespace {

// A few files say it for all of them: they come and go together.
constexpr std::size_t kSampled = 4;

void look_at_files(const Checkpoint& checkpoint, SpreadFacts& facts) {
  facts.hot = true;
  const std::size_t step = std::max<std::size_t>(1, checkpoint.files.size() / kSampled);
  for (std::size_t i = 0; i < checkpoint.files.size(); i += step) {
    const SourceFile& file = checkpoint.files[i];
    const Fd fd =
        open_fd(AT_FDCWD, checkpoint.directory + "/" + file.name, O_RDONLY, 0, Errc::kCheckpoint);
    const FileSystemKind kind = file_system_kind(fd.get());
    if (kind == FileSystemKind::kNetwork) facts.network_files = true;
    if (kind == FileSystemKind::kMemory) continue;
    if (!is_in_page_cache(fd.get(), file.bytes)) facts.hot = false;
  }
}

const RankPlace& place_of(const Launch& launch, int global) {
  return launch.places.at(static_cast<std::size_t>(global));
}

// The part of a host's network that one of its ranks has, of the group's slowest host.
double network_of_rank(const Launch& launch, const SpreadGroup& group,
                       const std::vector<SpreadFacts>& facts) {
  double least = 0;
  for (int rank = group.first; rank < group.first + group.count; ++rank) {
    const double share =
        facts.at(static_cast<std::size_t>(rank)).network / place_of(launch, rank).local_size;
    if (rank == group.first || share < least) least = share;
  }
  return least;
}

}  // namespace

std::string encode(const SpreadFacts& facts) {
  return nlohmann::json{{"hot", facts.hot},
                        {"network_files", facts.network_files},
                        {"network", facts.network},
                        {"no_messages", facts.no_messages}}
      .dump();
}

SpreadFacts decode_spread_facts(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {json.at("hot"), json.at("network_files"), json.at("network"), json.at("no_messages")};
}

std::vector<SpreadFacts> gather_spread_facts(Group& group, const cli::ServeOptions& options,
                                             const Launch& launch, const Checkpoint& checkpoint,
                                             const Cancel& cancel) {
  SpreadFacts mine;
  if (launch.place.local == 0) look_at_files(checkpoint, mine);
  mine.network = network_bytes_per_s();
  if (launch.cuda) mine.no_messages = nccl_unavailable(options.nccl_library);
  std::vector<SpreadFacts> all;
  for (const std::string& text :
       group.all_gather(encode(mine), {"every node to look at its files", cancel})) {
    all.push_back(decode_spread_facts(text));
  }
  // What a node's first rank saw of the files is the node's.
  for (std::size_t i = 0; i < all.size(); ++i) {
    const RankPlace& place = launch.places.at(i);
    const SpreadFacts& first = all[i - static_cast<std::size_t>(place.local)];
    all[i].hot = first.hot;
    all[i].network_files = first.network_files;
  }
  return all;
}

SpreadGroup node_group(const Launch& launch) {
  return {launch.place.global - launch.place.local, launch.place.local_size, 1};
}

SpreadGroup wide_group(const Launch& launch, Spread spread, const std::vector<SpreadFacts>& facts) {
  const SpreadGroup own = node_group(launch);
  if (own.count == static_cast<int>(launch.places.size())) return own;
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (!facts[rank].no_messages.empty() && spread == Spread::kAlways) {
      throw Error(Errc::kLauncher,
                  fmt::format("--spread always: rank {} cannot exchange weights with other hosts: "
                              "{}; or read them on every node with --spread auto",
                              rank, facts[rank].no_messages));
    }
    // The page cache of each node is faster than any network.
    if (spread == Spread::kAuto &&
        (!facts[rank].no_messages.empty() || facts[rank].hot || facts[rank].network == 0)) {
      return own;
    }
  }
  return group_of_nodes(launch.places, launch.place.global);
}

LinkRates node_rates(const Launch& launch, const SpreadGroup& group,
                     const std::vector<SpreadFacts>& facts) {
  const SpreadFacts& own = facts.at(static_cast<std::size_t>(group.first));
  return rates_apart(usual_rates(launch.cuda, own.hot), group.nodes, own.network_files);
}

LinkRates wide_rates(const Launch& launch, const SpreadGroup& group,
                     const std::vector<SpreadFacts>& facts) {
  const SpreadFacts& own = facts.at(static_cast<std::size_t>(group.first));
  return rates_together(usual_rates(launch.cuda, own.hot), group, own.network_files,
                        network_of_rank(launch, group, facts));
}

}  // namespace preload::run
