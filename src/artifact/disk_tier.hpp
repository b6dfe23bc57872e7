// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/tier.hpp"
#include "base/bytes.hpp"
#include "base/fd.hpp"

namespace preload::artifact {

// Entries as files <root>/<kind>/<config-hash>/<filename>, as they are, each with a record of its
// metadata, length and hash in .<filename>.<hash>.meta beside it. Writes go to a temporary file and
// become an entry by one rename; a temporary whose writer is gone is removed by the next writer.
class DiskTier : public Tier {
 public:
  // What the folder may hold; past it, what was not used for longest goes after a put.
  struct Limits {
    std::uint64_t bytes = 32 * kGiB;
    std::size_t entries = 10000;
  };

  // Below $PRELOAD_CACHE_ROOT and its defaults (load/cache_dir.hpp). Nothing is made before the
  // first put; a machine without a usable cache folder has misses and failed puts.
  DiskTier();
  // Below `root`, which is the folder vllm-warmup-cache itself.
  explicit DiskTier(std::string root, Limits limits);
  explicit DiskTier(std::string root);

  std::optional<Found> get(const Key& key, const Environment& here) override;
  Put put(const Key& key, int content, const Metadata& metadata,
          Overwrite overwrite = Overwrite::kNever) override;
  std::vector<Entry> list(std::string_view kind = {}) override;

  const std::string& root() const noexcept { return root_; }  // "" without a cache folder

 private:
  std::string root_;
  Limits limits_;
};

}  // namespace preload::artifact
