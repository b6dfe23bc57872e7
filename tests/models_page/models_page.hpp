// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace preload::test {

// docs/models.md as the code makes it: which model is served in which layout under which
// parallelism, found by trying.
std::string models_page();

// Architectures with rules that the page has no line for.
std::vector<std::string> architectures_without_specimen();

}  // namespace preload::test
