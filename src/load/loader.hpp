// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "load/read_gate.hpp"
#include "load/read_method.hpp"
#include "load/read_watch.hpp"
#include "memory/slab.hpp"
#include "plan/load_plan.hpp"

namespace preload {

// By the CPUs that this process may use, at most 16; where a GPU is fed, a quarter of them is left
// to the driver's own threads.
int default_reader_threads(HandleKind kind) noexcept;

struct LoadOptions {
  std::uint64_t ring_bytes = 512 * kMiB;  // host bounce memory of this rank, all threads together
  int threads = 0;                        // 0: default_reader_threads
  int device = 0;                         // CUDA ordinal, for device memory
  std::optional<ReadMethod> method = std::nullopt;  // unset: by what is in the page cache
  ReadsInFlight in_flight = {};                     // of this rank, per file system
  std::uint64_t chunk_bytes = 0;                    // of the ring's chunks, at most; 0: the default
};

// Read by the progress reporters while the load runs.
struct LoadProgress {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> total_bytes{0};
  ReadWatch reads;
};

struct LoadResult {
  std::vector<Hash128> served;   // per program tensor: over its row-major bytes; aliases repeat
  std::vector<Hash128> source;   // per plan op: contribution to its source tensor's hash
  std::uint64_t bytes_read = 0;  // taken from the files, gaps between close rows included
  double setup_seconds = 0;      // host buffers, pinning, fills: before the first read
  double seconds = 0;            // first read to last byte hashed
  ReadMethod method = ReadMethod::kPread;  // how most bytes were read
};

// Executes `plan` into `memory`, fresh from allocate_slabs. Throws Error(kCheckpoint) naming file
// and range when bytes that the headers promised are not there or cannot be read, Error(kDevice)
// from the GPU, Cancelled.
LoadResult load(const LoadPlan& plan, const CopyProgram& program, const Checkpoint& checkpoint,
                SlabMemory& memory, const LoadOptions& options, LoadProgress& progress,
                const Cancel& cancel);

}  // namespace preload
