// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "comm/rank_exchange.hpp"
#include "load/read_gate.hpp"
#include "load/read_method.hpp"
#include "load/read_tuning.hpp"
#include "load/read_watch.hpp"
#include "memory/slab.hpp"
#include "plan/load_plan.hpp"
#include "plan/read_plan.hpp"
#include "plan/source_hashes.hpp"

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
  bool keep_tuning = true;  // what was measured of reading, for later loads on this host
  std::uint64_t least_trial_bytes = kLeastTrialBytes;  // smaller loads are not measured
  // Called once this rank's memory is ready to be written to by others, before the first read.
  std::function<void()> before_reading = {};
};

// Read by the progress reporters while the load runs.
struct LoadProgress {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> total_bytes{0};
  ReadWatch reads;
};

// The slabs of other ranks, as far as they are mapped here to be written to.
class PeerSlabs {
 public:
  virtual ~PeerSlabs() = default;
  // Null where they are not mapped.
  virtual std::byte* address(std::uint32_t rank, std::uint32_t slab) const noexcept = 0;
};

// How a rank that cannot write all others' memory hands on what it reads, and is handed it.
struct LoadMessages {
  RankExchange& exchange;
  std::vector<ReadPlan> incoming;  // of those that send it something: see plan_incoming
  std::uint64_t round_bytes = 0;   // see rounds.hpp; the same on every rank
};

// What one rank loads: its reads, and its memory, fresh from allocate_slabs. `peers` is needed
// where the reads hand something on, `messages` where not all of that can be written.
struct LoadWork {
  const LoadPlan& plan;
  const CopyProgram& program;
  const Checkpoint& checkpoint;
  const ReadPlan& reads;
  SlabMemory& memory;
  const PeerSlabs* peers = nullptr;
  const LoadMessages* messages = nullptr;

  std::byte* address(std::uint32_t tensor) const noexcept {
    const Placement& place = plan.slabs.placements[tensor];
    return memory.address(place.slab) + place.offset;
  }
};

// A part of the hash of one tensor of another rank, by what was handed to it.
struct GivenHash {
  std::uint32_t owner = 0;  // rank, by its number in the spread group
  std::uint32_t tensor = 0;
  Hash128 hash = {};
  friend bool operator==(const GivenHash&, const GivenHash&) = default;
};
std::string encode_given(const std::vector<GivenHash>& given);
std::vector<GivenHash> decode_given(std::string_view bytes);

struct LoadResult {
  std::vector<Hash128> served;             // per program tensor: over its row-major bytes
  std::vector<SourceRegion> sources;       // what was read, with its part of its tensor's hash
  std::vector<GivenHash> given;            // one per tensor that something was handed to
  std::uint64_t bytes_read = 0;            // taken from the files, gaps between close rows included
  double setup_seconds = 0;                // host buffers, pinning, fills: before the first read
  double seconds = 0;                      // first read to last byte hashed
  ReadMethod method = ReadMethod::kPread;  // how most bytes were read
  int threads = 0;                         // on how many threads, after any trials
};

// Executes `work`. Until finish_load `served` has what this rank's own reads gave. Throws
// Error(kCheckpoint) naming file and range when bytes that the headers promised are not there or
// cannot be read, Error(kDevice) from the GPU, Cancelled.
LoadResult load(const LoadWork& work, const LoadOptions& options, LoadProgress& progress,
                const Cancel& cancel);

// Completes `result` once every other rank has handed over what it read: adds their parts of the
// hashes, and hashes what must be read back. Throws Error(kDevice) naming a tensor that did not
// arrive as it was sent.
void finish_load(LoadResult& result, const LoadWork& work, const std::vector<GivenHash>& received,
                 const LoadOptions& options, const Cancel& cancel);

// Hashes of tensors of the program over their row-major bytes, where they lie.
std::vector<Hash128> hash_served(const LoadWork& work, const std::vector<std::uint32_t>& tensors,
                                 const LoadOptions& options, const Cancel& cancel);

// Both, for a rank that reads all it holds.
LoadResult load_alone(const LoadPlan& plan, const CopyProgram& program,
                      const Checkpoint& checkpoint, SlabMemory& memory, const LoadOptions& options,
                      LoadProgress& progress, const Cancel& cancel);

}  // namespace preload
