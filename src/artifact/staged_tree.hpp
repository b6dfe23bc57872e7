// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "artifact/tree_bundle.hpp"
#include "base/fd.hpp"

namespace preload::artifact {

// A directory tree on its way to its place, in a folder beside it. Its writer holds a lock on that
// folder, so that the next one can remove what a writer left that is gone.
class StagedTree {
 public:
  // Makes the folders above `directory`; throws Error when it cannot.
  explicit StagedTree(const std::string& directory);
  StagedTree(const StagedTree&) = delete;
  StagedTree& operator=(const StagedTree&) = delete;
  ~StagedTree();  // gone

  int fd() const noexcept { return folder_.get(); }
  // Becomes `directory` where there is none; else each file goes to its place in it unless
  // something is there, which `summary` then counts.
  void merge(BundleSummary& summary);

 private:
  std::string name_;
  std::string target_;
  Fd parent_;
  Fd folder_;
};

}  // namespace preload::artifact
