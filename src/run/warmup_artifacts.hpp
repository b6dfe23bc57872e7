// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "artifact/disk_tier.hpp"
#include "artifact/flashinfer_tables.hpp"
#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "hook/engine_caches.hpp"
#include "run/launch.hpp"
#include "run/rank_plan.hpp"

namespace preload::run {

// What a warm-up leaves on a node: the directories that engines are told of, and the artifacts from
// which they are filled again where they are gone or on another node. What decides whether it is of
// use is the model's configuration and topology, the command and the node's ranks (the key), and
// the hardware, driver and installed engines (the environment).
class WarmupArtifacts {
 public:
  // `plan` is the target's. Makes nothing.
  WarmupArtifacts(const cli::ServeOptions& options, const Launch& launch, const RankPlan& plan,
                  const Cancel& cancel);

  const std::string& root() const noexcept { return root_; }  // "": nowhere to keep anything
  const std::vector<hook::EngineCache>& caches() const noexcept { return caches_; }

  // By one rank of a node. Makes the directories; false, with a warning, where they cannot be made
  // and nobody asked for them by name.
  bool prepare(const std::map<std::string, std::string>& more);  // see hook::prepare
  // What an earlier warm-up left, in its place or as an artifact: then it is there. False: there is
  // nothing of use. Throws Cancelled, as store does: there may be GiBs to pack and unpack.
  bool find();
  void store();  // one line of log for what fails

 private:
  bool find_tree();
  std::string marker_text() const;
  bool is_marked() const;
  void mark() const;

  const Cancel& cancel_;
  const bool given_;
  const RankCoords node_rank_;  // the node's first
  std::string model_, config_;  // the latter a hash
  artifact::DiskTier tier_;
  artifact::Environment here_;
  artifact::Key reference_;
  std::string root_, marker_;  // the latter of a warm-up that is in the directories
  std::vector<hook::EngineCache> caches_;
  artifact::FlashinferPlace flashinfer_;
};

}  // namespace preload::run
