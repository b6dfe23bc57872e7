// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/tier.hpp"
#include "base/bytes.hpp"

namespace preload::artifact {

struct DiskLimits {
  std::uint64_t bytes = 32 * kGiB;
  std::size_t entries = 10000;
};

// What goes when a cache is tidied; of what is left, the longest unused until it fits.
struct PruneRule {
  std::optional<DiskLimits> limits;
  std::optional<std::time_t> unused_s;  // entries that were not used for so long
  bool damaged = true;                  // those that have not the recorded length
};

// Entries as files <root>/<kind>/<config-hash>/<filename>, as they are, each with a record of its
// metadata, length and hash beside it. Writes go to a temporary file and become an entry by one
// rename; a temporary whose writer is gone goes with the next write. After a put, entries past the
// limits go, the longest unused first.
class DiskTier : public Tier {
 public:
  // <cache root>/vllm-warmup-cache (load/cache_dir.hpp). Nothing is made before the first put;
  // where there is no cache root every get is a miss, and puts fail.
  DiskTier();
  explicit DiskTier(std::string root, DiskLimits limits = {});

  std::optional<Found> get(const Key& key, const Environment& here) override;
  Put put(const Key& key, int content, const Metadata& metadata,
          Overwrite overwrite = Overwrite::kNever) override;
  std::vector<Entry> list(std::string_view kind = {}) override;

  const std::string& root() const noexcept { return root_; }  // "" without a cache root

  // For people who look after the cache: these throw Error for what is in the way.
  struct Damage {
    Key key;
    std::string problem;
  };
  std::vector<Damage> check() const;  // reads every content
  std::vector<Key> prune(const PruneRule& rule) const;
  bool remove(const Key& key) const;  // false when it is not there

 private:
  Put publish(int root, const Key& key, int content, const Metadata& metadata,
              Overwrite overwrite) const;

  std::string root_;
  DiskLimits limits_;
};

}  // namespace preload::artifact
