// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace preload::wire {

// A read that takes longer than it should and has not ended.
struct StalledRead {
  std::string file;  // path
  std::uint64_t offset = 0, bytes = 0;
  double seconds = 0;  // so far
  friend bool operator==(const StalledRead&, const StalledRead&) = default;
};

}  // namespace preload::wire
