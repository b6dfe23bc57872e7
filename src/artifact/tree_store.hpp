// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "artifact/tier.hpp"
#include "artifact/tree_bundle.hpp"

namespace preload::artifact {

// Directory trees in a tier. A bundle lies under its own content's hash,
// vllm-warmup-cache/compile_cache/<sha256>/bundle.tar, so that ranks and configurations with the
// same tree share it; `reference` (kind compile_cache, the configuration's hash,
// rank_filename(rank, environment, "<tree>.json")) is a small entry that names it. Neither throws
// but Cancelled: one line of log says what was in the way.

// kPresent where `reference` names the same tree already; a tree without files is not stored.
Put store_tree(Tier& tier, const Key& reference, const std::string& directory,
               const Metadata& metadata, const BundleLimits& limits = {},
               const Cancel* cancel = nullptr);

// Merges the tree into `directory`; nothing where there is none of use.
std::optional<BundleSummary> restore_tree(Tier& tier, const Key& reference, const Environment& here,
                                          const std::string& directory,
                                          const BundleLimits& limits = {},
                                          const Cancel* cancel = nullptr);

}  // namespace preload::artifact
