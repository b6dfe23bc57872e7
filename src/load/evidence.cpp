// SPDX-License-Identifier: Apache-2.0
#include "load/evidence.hpp"

#include <algorithm>
#include <functional>

namespace preload {
namespace {

bool same_stat(const FileReceipt& a, const FileReceipt& b) {
  return a.settled && b.settled && a.name == b.name && a.bytes == b.bytes && a.inode == b.inode &&
         a.mtime_ns == b.mtime_ns && a.ctime_ns == b.ctime_ns;
}

bool same_sample(const FileReceipt& a, const FileReceipt& b) {
  return a.name == b.name && !a.sample.empty() && a.tensors == b.tensors && a.sample == b.sample;
}

template <class Same>
bool all(const Receipt& one, const Receipt& other, Same same) {
  return !one.empty() && std::ranges::equal(one, other, same);
}

}  // namespace

std::string_view evidence_name(Evidence evidence) noexcept {
  switch (evidence) {
    case Evidence::kNone:
      break;
    case Evidence::kReceipt:
      return "receipt";
    case Evidence::kHash:
      return "hash";
    case Evidence::kSample:
      return "sample";
    case Evidence::kKey:
      return "key";
  }
  return "none";
}

bool same_files(const Receipt& one, const Receipt& other) { return all(one, other, same_stat); }

std::vector<std::string> differing_files(const Receipt& one, const Receipt& other) {
  std::vector<std::string> names;
  for (const FileReceipt& file : one) {
    const auto twin = std::ranges::find(other, file.name, &FileReceipt::name);
    if (twin == other.end()) continue;
    const bool comparable = !file.sample.empty() && file.tensors == twin->tensors;
    if (comparable && file.sample != twin->sample) names.push_back(file.name);
  }
  return names;
}

bool same_samples(const Receipt& one, const Receipt& other) { return all(one, other, same_sample); }

}  // namespace preload
