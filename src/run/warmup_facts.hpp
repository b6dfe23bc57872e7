// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/warmup_options.hpp"
#include "hook/environment.hpp"
#include "run/launch.hpp"

namespace preload::run {

// What one rank tells the others before the warm-up is decided.
struct WarmupFacts {
  std::vector<std::string> addresses;  // of its host, best first
  int free_port = 0;                   // at which it could be a master
  std::string device;                  // UUID, or host:<local rank>
  std::string visible;                 // its GPU as CUDA_VISIBLE_DEVICES names it here; "": none
  std::string private_name;            // of a directory, should it be the one to choose
  std::string cache_root;              // on its node, "" without one
  bool found = false;                  // what the warm-up would leave is on its node
  friend bool operator==(const WarmupFacts&, const WarmupFacts&) = default;
};
std::string encode(const WarmupFacts& facts);
WarmupFacts decode_warmup_facts(std::string_view text);  // throws Error(kInternal)

// The first rank of this rank's node looks after what the node's ranks share.
int first_of_node(const Launch& launch, int global);

// What is decided of it, by value and alike on every rank.
struct WarmupPlan {
  bool needed = false;     // some node has not got what it would leave, or it is to run always
  bool runs_here = false;  // the command: by this rank
  std::string private_name;
  std::vector<int> served;  // by global rank, whose daemons meet in that directory on this node
  std::vector<std::string> devices;  // of those ranks
  std::string private_device;        // what this rank's daemons are called there; "": as in public
  hook::HookPlace place;             // of the hook that serves this rank; without socket_dir
};
WarmupPlan plan_warmup(const cli::WarmupOptions& options, const Launch& launch,
                       const std::vector<WarmupFacts>& ranks);

}  // namespace preload::run
