// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "cli/options.hpp"
#include "client/attachment.hpp"
#include "plan/shard_description.hpp"

namespace preload::cli {

// The local daemons that are meant, of those that answer or load. Throws Error(kUnavailable) when
// there is none, with the words of one that failed.
std::vector<Endpoint> local_daemons(const ClientOptions& options);

// One attached shard and what its daemon says of it.
struct LocalShard {
  Endpoint endpoint;
  std::unique_ptr<client::Attachment> attachment;
  ShardDescription description;
  double attach_ms = 0;
};
LocalShard attach_to(const ClientOptions& options, const Endpoint& endpoint,
                     const client::Expectation& expect = {});

}  // namespace preload::cli
