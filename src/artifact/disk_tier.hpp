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
#include "base/cancel.hpp"

namespace preload::artifact {

struct DiskLimits {
  std::uint64_t bytes = 32 * kGiB;
  std::size_t entries = 10000;
};

// Which entries are meant: all, those of a kind, or these.
struct Selection {
  std::string kind = {};
  std::vector<Key> keys = {};
  bool chooses(const Key& key) const;
};

// What goes of the entries that are meant; of what is left of them, the longest unused until it
// fits.
struct PruneRule {
  Selection selection = {};
  bool all = false;
  std::optional<DiskLimits> limits = {};
  bool keep_latest = false;                  // the entry that was used last stays within any limit
  std::optional<std::time_t> unused_s = {};  // entries that were not used for so long
  bool damaged = true;                       // those that have not the recorded length
};

// Entries as files <root>/<kind>/<config-hash>/<filename>, as they are, each with a record of its
// metadata, length and hash beside it. Writes go to a temporary file and become an entry by one
// rename; a temporary whose writer is gone goes with the next write. After a put, entries past the
// limits go, the longest unused first.
class DiskTier : public Tier {
 public:
  // <cache root>/vllm-warmup-cache (load/cache_dir.hpp). Nothing is made before the first put;
  // where there is no cache root every get is a miss, and puts fail.
  // When `cancel` is requested, reading and writing of contents ends with Cancelled and nothing
  // half done.
  explicit DiskTier(const Cancel* cancel = nullptr);
  explicit DiskTier(std::string root, DiskLimits limits = {}, const Cancel* cancel = nullptr);

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
  struct Checked {
    std::size_t entries = 0;
    std::vector<Damage> damages;
  };
  Checked check(const Selection& selection = {}) const;  // reads every content
  struct Pruned {
    std::vector<Key> keys;
    std::uint64_t bytes = 0;
    std::vector<Key> in_use;  // would have gone, and stay: see hold_file()
  };
  Pruned prune(const PruneRule& rule) const;

 private:
  Put publish(int root, const Key& key, int content, const Metadata& metadata,
              Overwrite overwrite) const;

  std::string root_;
  DiskLimits limits_;
  const Cancel* cancel_;
};

}  // namespace preload::artifact
