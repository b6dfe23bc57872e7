// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/cancel.hpp"

namespace preload::artifact {

// SHA-256, as 64 digits, of a file from its start: of `most` bytes or more, or of all there are.
// `name` is for messages. Throws Error, Cancelled.
std::string content_hash(int fd, const std::string& name, const Cancel* cancel,
                         std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

}  // namespace preload::artifact
