// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_hashes.hpp"

#include "client/region.hpp"

namespace preload::cli {

std::vector<TensorMismatch> verify_hashes(const client::Attachment& attachment, int threads) {
  const wire::ManifestView& manifest = attachment.manifest();
  std::vector<client::Region> regions;
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    const wire::ManifestTensor tensor = manifest[i];
    if (tensor.alias) continue;  // the same bytes as its target's
    const std::vector<client::Region> parts = client::row_major_regions(tensor, i);
    regions.insert(regions.end(), parts.begin(), parts.end());
  }
  const std::vector<Hash128> hashes =
      client::hash_regions(attachment, regions, manifest.size(), threads);
  std::vector<TensorMismatch> mismatches;
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    const wire::ManifestTensor tensor = manifest[i];
    if (tensor.hash != hashes[tensor.alias.value_or(i)]) {
      mismatches.push_back({std::string(tensor.name), std::nullopt});
    }
  }
  return mismatches;
}

}  // namespace preload::cli
