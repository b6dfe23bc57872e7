// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/cancel.hpp"

namespace preload::artifact {

// A directory tree as one tar file: what Triton, torch.compile, DeepGEMM and their like keep on
// disk. The same tree gives the same bytes: entries sorted by path, owner and times fixed, of the
// modes only whether it may be executed. Regular files and directories; a symbolic link where it
// stays inside.

struct BundleLimits {
  std::uint64_t bytes = 8 * kGiB;  // of all files together
  std::size_t entries = 200'000;
  std::size_t depth = 32;  // names in a path
};

struct BundleSummary {
  std::uint64_t bytes = 0;
  std::size_t files = 0;
  std::size_t skipped =
      0;  // writing: sockets, links out, unreadable; extracting: were there already
  std::string first_skipped;  // path, and why
};

// Why this process can neither write nor read bundles; empty when it can.
std::string bundles_problem();

// Writes the tree below `directory` to `out`. Throws Error past the limits and for what fails.
BundleSummary write_bundle(const std::string& directory, int out, const BundleLimits& limits = {},
                           const Cancel* cancel = nullptr);

// Unpacks `bundle` (a file) into a temporary directory beside `directory`, and only when all of it
// is sound merges that into `directory`, which is made where it is missing: files that are there
// stay as they are. Throws Error(kCheckpoint) naming the entry for anything hostile or broken
// (absolute paths, "..", links out, devices, set-id bits, duplicates, past the limits): `directory`
// is then untouched, as it is when the work is cancelled.
BundleSummary extract_bundle(int bundle, const std::string& directory,
                             const BundleLimits& limits = {}, const Cancel* cancel = nullptr);

}  // namespace preload::artifact
