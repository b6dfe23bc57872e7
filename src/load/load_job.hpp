// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "load/loader.hpp"
#include "load/pieces.hpp"
#include "load/read_tuning.hpp"
#include "load/source_files.hpp"
#include "plan/served_rows.hpp"

namespace preload {

// What the threads of one load share; private to load/.
struct LoadJob {
  LoadJob(const LoadWork& load_work, const LoadOptions& options, LoadProgress& load_progress,
          const Cancel& load_cancel);

  const ReadBlock& block_of(const Piece& piece) const noexcept {
    return work.reads.blocks[piece.block];
  }
  std::byte* address(const Delivery& delivery, std::uint64_t slab_offset) const noexcept {
    std::byte* const slab = delivery.owner == work.reads.self
                                ? work.memory.address(delivery.slab)
                                : work.peers->address(delivery.owner, delivery.slab);
    return slab + slab_offset;
  }
  bool is_own(const Delivery& delivery) const noexcept { return delivery.owner == work.reads.self; }
  // Goes to a rank whose memory cannot be written from here.
  bool by_message(std::uint32_t rank) const noexcept {
    return rank != work.reads.self &&
           (work.peers == nullptr || work.peers->address(rank, 0) == nullptr);
  }
  // Next chunk's number for the calling thread, in file order, or nothing at the phase's end.
  std::optional<std::size_t> next_chunk() noexcept {
    const std::size_t next = cursor.fetch_add(1, std::memory_order_relaxed);
    return next < phase_end ? std::optional(next) : std::nullopt;
  }
  // Where a phase ends that begins at chunk `first` and takes about `bytes`: its end, its bytes.
  using PhaseEnd =
      std::function<std::pair<std::size_t, std::uint64_t>(std::size_t first, std::uint64_t bytes)>;
  // Runs phases until all `chunks` are read, trials of what `tunings` holds first; `run` reads a
  // phase's chunks on so many threads and returns when they are where they belong.
  void run_phases(std::size_t chunks, const PhaseEnd& end_of,
                  const std::function<void(int threads)>& run);
  int most_threads() const noexcept;

  const LoadWork& work;
  const LoadOptions& options;
  LoadProgress& progress;
  const Cancel& cancel;
  SourceFiles files;
  std::vector<ReadTuning> tunings;  // what is worth trying; the only one when that is settled
  ChosenTuning chosen;
  std::atomic<std::size_t> cursor{0};
  std::size_t phase_end = 0;
  std::chrono::steady_clock::time_point first_read;  // set by the executor when it begins to read
};

// What a load's hashes are put together from.
struct LoadSums {
  std::vector<Hash128> source;  // per block
  std::vector<Hash128> served;  // per delivery; zero where the same as `source`, or not wanted
};

// Executors: run the job and give back the sums.
LoadSums load_on_host(LoadJob& job);
LoadSums load_on_device(LoadJob& job);

// The same for blocks of which others get something, where some of them are sent it.
LoadSums share_on_host(LoadJob& job);
LoadSums share_on_device(LoadJob& job);

// Hashes whole tensors where they lie, over their row-major bytes.
std::vector<Hash128> hash_host_tensors(const LoadWork& work,
                                       const std::vector<std::uint32_t>& tensors, int threads,
                                       const Cancel& cancel);
std::vector<Hash128> hash_device_tensors(const LoadWork& work,
                                         const std::vector<std::uint32_t>& tensors, int device,
                                         const Cancel& cancel);

}  // namespace preload
