// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "client/attachment.hpp"

namespace preload::client {

inline constexpr std::uint64_t kPieceBytes = 8 << 20;

// A range of one slab, at most kPieceBytes long.
struct Piece {
  std::uint32_t slab = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Brings every piece before the CPU: host memory in place, device memory through two pinned buffers
// per thread, the next copy under way while a piece is used. `use` is called once per piece with
// its index, on several threads; what it throws first comes out of here. Bounded memory.
void read_pieces(const Attachment& attachment, std::span<const Piece> pieces, int threads,
                 const std::function<void(std::size_t, std::span<const std::byte>)>& use);

int default_threads();  // CPUs this process may run on, at most 16

}  // namespace preload::client
