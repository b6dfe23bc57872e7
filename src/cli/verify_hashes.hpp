// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/attachment.hpp"

namespace preload::cli {

// A tensor whose bytes are not what they should be, and the source tensor that it was compared
// with.
struct TensorMismatch {
  std::string tensor;
  std::optional<std::string> source;
  friend bool operator==(const TensorMismatch&, const TensorMismatch&) = default;
};

// Recomputes the hash of every tensor where it lies and compares it with the manifest's. Aliases
// share their target's bytes and are compared by their own record.
std::vector<TensorMismatch> verify_hashes(const client::Attachment& attachment, int threads);

}  // namespace preload::cli
