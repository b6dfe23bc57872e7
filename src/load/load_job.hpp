// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "load/loader.hpp"
#include "load/pieces.hpp"
#include "load/served_rows.hpp"
#include "load/source_files.hpp"

namespace preload {

// What the threads of one load share; private to load/.
struct LoadJob {
  LoadJob(const LoadPlan& load_plan, const CopyProgram& copy_program, const Checkpoint& checkpoint,
          SlabMemory& slab_memory, const ReadOptions& reading, LoadProgress& load_progress,
          const Cancel& load_cancel);

  std::byte* address(std::uint32_t tensor) const noexcept {
    const Placement& place = plan.slabs.placements[tensor];
    return memory.address(place.slab) + place.offset;
  }
  const CopyOp& op_of(const Piece& piece) const noexcept { return ops[piece.op]; }
  std::byte* target_of(const Piece& piece) const noexcept {
    return address(op_of(piece).tensor) + target_offset(op_of(piece), piece);
  }
  // The piece's bytes go to their place as they are, in one stretch.
  bool goes_straight(const Piece& piece) const noexcept {
    return !op_of(piece).converts() && is_target_run(op_of(piece), piece);
  }
  bool hashes_served(const CopyOp& op) const noexcept {
    return served_from[op.tensor] == ServedHash::kCopies;
  }
  // Next chunk for the calling thread, in file order, or nullptr at the end.
  const Chunk* next_chunk() noexcept {
    const std::size_t index = cursor.fetch_add(1, std::memory_order_relaxed);
    return index < list.chunks.size() ? &list.chunks[index] : nullptr;
  }

  const LoadPlan& plan;
  const CopyProgram& program;
  SlabMemory& memory;
  LoadProgress& progress;
  const Cancel& cancel;
  std::vector<CopyOp> ops;  // the plan's, rows joined
  std::vector<ServedHash> served_from;
  SourceFiles files;
  ChunkList list;
  std::atomic<std::size_t> cursor{0};
  std::chrono::steady_clock::time_point first_read;  // set by the executor when it begins to read
};

// What a load's hashes are put together from.
struct LoadSums {
  std::vector<Hash128> source;      // per op
  std::vector<Hash128> served;      // per op; zero where the same as `source`, or not wanted
  std::vector<Hash128> after_load;  // per tensor; of those that are read back
};

// How host buffers are shared out: `threads` threads with `depth` chunks and a scratch area each.
struct RingShape {
  int threads = 1;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t scratch_bytes = 0;
};
// Throws Error(kUsage) when `ring_bytes` cannot hold one thread with the smallest chunks.
RingShape shape_ring(std::uint64_t ring_bytes, int threads, int depth,
                     std::uint64_t max_chunk_bytes);

// Executors: cut the ops into job.list, run, and give back the sums.
LoadSums load_on_host(LoadJob& job, const LoadOptions& options);
LoadSums load_on_device(LoadJob& job, const LoadOptions& options);

}  // namespace preload
