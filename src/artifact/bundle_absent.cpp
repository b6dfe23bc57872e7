// SPDX-License-Identifier: Apache-2.0
#include "artifact/tree_bundle.hpp"
#include "base/error.hpp"

namespace preload::artifact {

std::string bundles_problem() {
  return "this preload was built without libarchive: build it with -DPRELOAD_LIBARCHIVE=ON";
}

BundleSummary write_bundle(const std::string&, int, const BundleLimits&, const Cancel*) {
  throw Error(Errc::kUsage, bundles_problem());
}

BundleSummary extract_bundle(int, const std::string&, const BundleLimits&, const Cancel*) {
  throw Error(Errc::kUsage, bundles_problem());
}

}  // namespace preload::artifact
