// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>

#include "hook/hook.hpp"
#include "run/private_serving.hpp"
#include "run/rank_context.hpp"
#include "run/warmup_artifacts.hpp"
#include "run/warmup_facts.hpp"

namespace preload::run {

// The external warm-up (--warmup-exec). It takes two steps, with release_all() between them: what
// the ranks have to agree on needs their group, and the command is to find a GPU that holds nothing
// but the weights. Without the flag both do nothing.
class RankWarmup {
 public:
  explicit RankWarmup(RankContext& rank) : rank_(rank) {}
  // Collective. Looks for what an earlier warm-up has left, decides, and opens the private sockets.
  void prepare();
  // Runs the command where it is to run and waits for every rank's. Nothing of it is left
  // afterwards but what it wrote. Throws Error when it failed and is required.
  void run();

 private:
  bool is_node_first() const;
  void decide(const std::vector<WarmupFacts>& ranks);
  WarmupFacts own_facts();
  std::map<std::string, std::string> tuner_variables() const;
  void open_serving();
  bool succeeds();
  bool run_command();
  void conclude(int failed);

  RankContext& rank_;
  std::optional<WarmupArtifacts> artifacts_;
  std::optional<WarmupPlan> plan_;
  std::optional<PrivateServing> serving_;
  bool has_caches_ = false;  // on this node
};

}  // namespace preload::run
