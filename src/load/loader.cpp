// SPDX-License-Identifier: Apache-2.0
#include "load/loader.hpp"

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "load/load_job.hpp"
#include "load/run_threads.hpp"

namespace preload {

namespace {

constexpr int kMaxThreads = 16;  // more only fight over the page cache and PCIe

std::vector<CopyOp> joined(const std::vector<CopyOp>& ops) {
  std::vector<CopyOp> result;
  result.reserve(ops.size());
  std::transform(ops.begin(), ops.end(), std::back_inserter(result), join_rows);
  return result;
}

// Adds the contributions up per tensor; aliases repeat their target's.
std::vector<Hash128> served_hashes(const LoadJob& job, const LoadSums& sums) {
  std::vector<Hash128> served = sums.after_load;
  for (std::size_t i = 0; i < job.ops.size(); ++i) {
    const CopyOp& op = job.ops[i];
    if (!job.hashes_served(op)) continue;
    served[op.tensor] += hashes_alike(op) ? sums.source[i] : sums.served[i];
  }
  for (std::size_t t = 0; t < served.size(); ++t) {
    if (const auto alias = job.program.tensors[t].alias) served[t] = served[*alias];
  }
  return served;
}

}  // namespace

int default_reader_threads(HandleKind kind) noexcept {
  const int cpus = usable_cpus();
  return std::min(kind == HandleKind::kHost ? cpus : cpus - cpus / 4, kMaxThreads);
}

LoadJob::LoadJob(const LoadPlan& load_plan, const CopyProgram& copy_program,
                 const Checkpoint& checkpoint, SlabMemory& slab_memory, const ReadOptions& reading,
                 LoadProgress& load_progress, const Cancel& load_cancel)
    : plan(load_plan),
      program(copy_program),
      memory(slab_memory),
      progress(load_progress),
      cancel(load_cancel),
      ops(joined(load_plan.ops)),
      served_from(served_hash_sources(copy_program, load_plan)),
      files(checkpoint, ops, reading) {}

LoadResult load(const LoadPlan& plan, const CopyProgram& program, const Checkpoint& checkpoint,
                SlabMemory& memory, const LoadOptions& options, LoadProgress& progress,
                const Cancel& cancel) {
  LoadOptions settled = options;
  if (settled.threads <= 0) settled.threads = default_reader_threads(memory.kind());
  LoadJob job(plan, program, checkpoint, memory,
              {options.method, options.in_flight, &progress.reads}, progress, cancel);
  std::uint64_t total = 0;
  for (const CopyOp& op : job.ops) total += op.rows * op.row_bytes;
  progress.bytes = 0;
  progress.total_bytes = total;

  const auto start = std::chrono::steady_clock::now();
  LoadSums sums;
  if (memory.kind() == HandleKind::kHost) {
    sums = load_on_host(job, settled);
  } else {
#ifdef PRELOAD_HAVE_CUDA
    sums = load_on_device(job, settled);
#else
    throw Error(Errc::kDevice, "this build has no CUDA: it loads into host memory only");
#endif
  }
  LoadResult result;
  result.served = served_hashes(job, sums);
  result.source = std::move(sums.source);
  result.bytes_read = job.files.bytes_read();
  result.method = job.files.main_method();
  const std::chrono::duration<double> setup = job.first_read - start;
  const std::chrono::duration<double> reading = std::chrono::steady_clock::now() - job.first_read;
  result.setup_seconds = setup.count();
  result.seconds = reading.count();
  job.files.check_unchanged();
  return result;
}

}  // namespace preload
