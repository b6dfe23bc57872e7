// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace preload {

// Whether what is served is deposited in the keeper of the directory.
enum class KeeperUse : std::uint8_t { kOff, kAuto, kRequire };

}  // namespace preload
