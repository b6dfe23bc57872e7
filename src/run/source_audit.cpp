// SPDX-License-Identifier: Apache-2.0
#include "run/source_audit.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "load/hash_files.hpp"
#include "plan/source_hashes.hpp"

namespace preload::run {
namespace {

// Ranks load at their own pace, and the job channel notices one that is gone: this only bounds a
// wait that nothing else would.
constexpr std::chrono::hours kLoadTimeout{24};

std::vector<std::vector<SourceRegion>> regions_by_auditor(const LoadResult& result, int ranks) {
  std::vector<std::vector<SourceRegion>> parts(static_cast<std::size_t>(ranks));
  for (const SourceRegion& region : result.sources) {
    parts[region.source % parts.size()].push_back(region);
  }
  return parts;
}

std::vector<SourceHash> share(Group& group, const std::vector<SourceHash>& mine,
                              const Cancel& cancel) {
  // A source hash travels as a region without an extent.
  std::vector<SourceRegion> records;
  for (const SourceHash& hash : mine) records.push_back({hash.source, 0, 0, 0, 0, hash.hash});
  std::vector<SourceHash> all;
  for (const std::string& part : group.all_gather(
           encode_regions(records), {"every rank's source hashes", cancel, kLoadTimeout})) {
    for (const SourceRegion& record : decode_regions(part)) {
      all.push_back({record.source, record.hash});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const SourceHash& a, const SourceHash& b) { return a.source < b.source; });
  return all;
}

}  // namespace

std::vector<SourceHash> audit_sources(Group& group, const RankPlan& plan, const LoadResult& result,
                                      int threads, const ReadOptions& reading,
                                      const Cancel& cancel) {
  std::vector<std::string> parts;
  for (const auto& regions : regions_by_auditor(result, group.size())) {
    parts.push_back(encode_regions(regions));
  }
  std::vector<SourceRegion> mine;
  for (const std::string& part :
       group.all_to_all(parts, {"every rank to finish loading", cancel, kLoadTimeout})) {
    const std::vector<SourceRegion> regions = decode_regions(part);
    mine.insert(mine.end(), regions.begin(), regions.end());
  }
  CombinedHashes combined = combine_regions(plan.checkpoint, std::move(mine));
  if (!combined.rehash.empty()) {
    const auto rehashed = hash_sources(plan.checkpoint, combined.rehash, threads, cancel, reading);
    combined.hashes.insert(combined.hashes.end(), rehashed.begin(), rehashed.end());
  }
  return share(group, combined.hashes, cancel);
}

}  // namespace preload::run
