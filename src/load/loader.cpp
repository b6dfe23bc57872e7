// SPDX-License-Identifier: Apache-2.0
#include "load/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "load/load_job.hpp"
#include "load/run_threads.hpp"
#include "plan/shared_reads.hpp"

namespace preload {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxThreads = 16;  // more only fight over the page cache and PCIe

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::uint32_t> files_of(const ReadPlan& reads) {
  std::vector<std::uint32_t> files;
  for (const ReadBlock& block : reads.blocks) files.push_back(block.file);
  files.erase(std::ranges::unique(files).begin(), files.end());  // blocks are by file
  return files;
}

LoadOptions settle(LoadOptions options, HandleKind kind) {
  if (options.threads <= 0) options.threads = default_reader_threads(kind);
  return options;
}

TuningKey tuning_key(const LoadJob& job) {
  return {host_name(), usable_cpus(), job.files.file_system(), job.files.reads_past_the_cache(),
          job.work.memory.kind() != HandleKind::kHost};
}

// What was measured on this host before, or what to measure; flags fix their part of it.
std::vector<ReadTuning> tunings_of(const LoadJob& job, const LoadOptions& asked) {
  const HandleKind kind = job.work.memory.kind();
  const TuningChoice choice{.past_the_cache = job.files.reads_past_the_cache(),
                            .may_map = job.files.may_map(),
                            .usual_threads = job.options.threads,
                            .most_threads = default_reader_threads(HandleKind::kHost),
                            .fixed_method = asked.method,
                            .fixed_threads = asked.threads > 0 || kind == HandleKind::kHost};
  std::vector<ReadTuning> tunings = tunings_to_try(choice);
  if (tunings.size() == 1) return tunings;
  const std::optional<ReadTuning> kept = recall_tuning(tuning_key(job));
  if (!kept) return tunings;
  return {{choice.fixed_method.value_or(kept->method),
           choice.fixed_threads ? choice.usual_threads : kept->threads}};
}

std::vector<SourceRegion> source_regions(const ReadPlan& reads, const LoadSums& sums) {
  std::vector<SourceRegion> regions;
  regions.reserve(reads.blocks.size());
  for (std::size_t i = 0; i < reads.blocks.size(); ++i) {
    const ReadBlock& block = reads.blocks[i];
    regions.push_back({block.source, block.source_offset, block.rows, block.row_bytes,
                       block.file_stride, sums.source[i]});
  }
  return regions;
}

// Adds the deliveries' contributions up: this rank's own tensors, and others'.
void add_served(const LoadWork& work, const LoadSums& sums, LoadResult& result) {
  result.served.resize(work.program.tensors.size());
  std::map<std::pair<std::uint32_t, std::uint32_t>, Hash128> given;
  for (std::size_t b = 0; b < work.reads.blocks.size(); ++b) {
    const ReadBlock& block = work.reads.blocks[b];
    for (std::uint32_t d = block.first; d < block.first + block.count; ++d) {
      const Delivery& delivery = work.reads.deliveries[d];
      const bool own = delivery.owner == work.reads.self;
      // A tensor that is hashed otherwise is named all the same: its owner waits for it.
      Hash128& sum =
          own ? result.served[delivery.tensor] : given[{delivery.owner, delivery.tensor}];
      if (!delivery.hashed) continue;
      sum += hashes_alike(block, delivery) ? sums.source[b] : sums.served[d];
    }
  }
  for (const auto& [to, hash] : given) result.given.push_back({to.first, to.second, hash});
}

using Executor = LoadSums (*)(LoadJob& job);

#ifdef PRELOAD_HAVE_CUDA
Executor load_into(HandleKind kind) {
  return kind == HandleKind::kHost ? load_on_host : load_on_device;
}
Executor share_into(HandleKind kind) {
  return kind == HandleKind::kHost ? share_on_host : share_on_device;
}
#else
void require_host(HandleKind kind) {
  if (kind == HandleKind::kHost) return;
  throw Error(Errc::kDevice, "this build has no CUDA: it loads into host memory only");
}
Executor load_into(HandleKind kind) {
  require_host(kind);
  return load_on_host;
}
Executor share_into(HandleKind kind) {
  require_host(kind);
  return share_on_host;
}
#endif

// Some of a rank's blocks from the files to their places.
struct LoadPass {
  LoadPass(const LoadWork& work, const LoadOptions& options, LoadProgress& progress,
           const Cancel& cancel)
      : settled(settle(options, work.memory.kind())),
        start(Clock::now()),
        job(work, settled, progress, cancel) {
    job.tunings = tunings_of(job, options);
  }

  void run(Executor execute, const LoadOptions& options) {
    const LoadSums sums = execute(job);
    result.seconds = seconds_since(job.first_read);
    result.setup_seconds = std::chrono::duration<double>(job.first_read - start).count();
    result.sources = source_regions(job.work.reads, sums);
    add_served(job.work, sums, result);
    result.bytes_read = job.files.bytes_read();
    result.method = job.files.main_method();
    result.threads = job.chosen.tuning.threads;
    if (job.chosen.tried && options.keep_tuning) {
      remember_tuning(tuning_key(job), job.chosen.tuning);
    }
    job.files.check_unchanged();
  }

  const LoadOptions settled;
  const Clock::time_point start;
  LoadJob job;
  LoadResult result;
};

// What both passes of a load came to.
LoadResult joined(LoadResult first, const LoadResult& second) {
  for (std::size_t t = 0; t < first.served.size(); ++t) first.served[t] += second.served[t];
  first.sources.insert(first.sources.end(), second.sources.begin(), second.sources.end());
  first.given.insert(first.given.end(), second.given.begin(), second.given.end());
  if (second.bytes_read > first.bytes_read) {
    first.method = second.method;
    first.threads = second.threads;
  }
  first.bytes_read += second.bytes_read;
  first.setup_seconds += second.setup_seconds;
  first.seconds += second.seconds;
  return first;
}

}  // namespace

std::vector<Hash128> hash_served(const LoadWork& work, const std::vector<std::uint32_t>& tensors,
                                 const LoadOptions& options, const Cancel& cancel) {
  if (tensors.empty()) return {};
#ifdef PRELOAD_HAVE_CUDA
  if (work.memory.kind() != HandleKind::kHost) {
    return hash_device_tensors(work, tensors, options.device, cancel);
  }
#endif
  return hash_host_tensors(work, tensors, settle(options, HandleKind::kHost).threads, cancel);
}

int default_reader_threads(HandleKind kind) noexcept {
  const int cpus = usable_cpus();
  return std::min(kind == HandleKind::kHost ? cpus : cpus - cpus / 4, kMaxThreads);
}

LoadJob::LoadJob(const LoadWork& load_work, const LoadOptions& load_options,
                 LoadProgress& load_progress, const Cancel& load_cancel)
    : work(load_work),
      options(load_options),
      progress(load_progress),
      cancel(load_cancel),
      files(load_work.checkpoint, files_of(load_work.reads),
            {load_options.method, load_options.in_flight, &load_progress.reads}) {}

int LoadJob::most_threads() const noexcept {
  return std::ranges::max_element(tunings, {}, &ReadTuning::threads)->threads;
}

void LoadJob::run_phases(std::size_t chunks, const PhaseEnd& end_of,
                         const std::function<void(int threads)>& run) {
  std::size_t done = 0;
  const auto phase = [&](const ReadTuning& tuning, std::size_t end) {
    files.use(tuning.method);
    cursor = done;
    phase_end = end;
    run(tuning.threads);
    done = end;
  };
  chosen = choose_tuning(
      tunings, work.reads.read_bytes,
      [&](const ReadTuning& tuning, std::uint64_t bytes) {
        const auto [end, taken] = end_of(done, bytes);
        phase(tuning, end);
        return taken;
      },
      options.least_trial_bytes);
  phase(chosen.tuning, chunks);
}

LoadResult load(const LoadWork& work, const LoadOptions& options, LoadProgress& progress,
                const Cancel& cancel) {
  progress.bytes = 0;
  progress.total_bytes = work.reads.read_bytes;
  if (work.messages == nullptr) {
    LoadPass pass(work, options, progress, cancel);
    pass.run(load_into(work.memory.kind()), options);
    return std::move(pass.result);
  }
  // Blocks of which others get something go round by round, which takes the ranks in step; what a
  // rank reads for itself does not wait for anybody.
  const ReadParts parts = split_reads(work.reads);
  LoadWork own{work.plan, work.program, work.checkpoint, parts.own, work.memory};
  LoadPass first(own, options, progress, cancel);
  first.run(load_into(work.memory.kind()), options);
  LoadWork shared{work.plan,   work.program, work.checkpoint, parts.shared,
                  work.memory, work.peers,   work.messages};
  LoadOptions again = options;
  again.before_reading = {};
  LoadPass second(shared, again, progress, cancel);
  second.run(share_into(work.memory.kind()), again);
  return joined(std::move(first.result), second.result);
}

void finish_load(LoadResult& result, const LoadWork& work, const std::vector<GivenHash>& received,
                 const LoadOptions& options, const Cancel& cancel) {
  const Clock::time_point start = Clock::now();
  const std::vector<ServedHash> from = served_hash_sources(work.program, work.plan);
  std::vector<bool> wanted(from.size());
  for (const GivenHash& given : received) {
    if (given.owner != work.reads.self || given.tensor >= from.size()) {
      throw Error(Errc::kInternal, "a rank reports a tensor that is not this rank's");
    }
    result.served[given.tensor] += given.hash;
    wanted[given.tensor] = true;
  }
  std::vector<std::uint32_t> tensors;
  for (std::uint32_t t = 0; t < from.size(); ++t) {
    if (wanted[t] || from[t] == ServedHash::kAfterLoad) tensors.push_back(t);
  }
  const std::vector<Hash128> found = hash_served(work, tensors, options, cancel);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Hash128& served = result.served[tensors[i]];
    if (from[tensors[i]] == ServedHash::kAfterLoad) served = found[i];
    if (served == found[i]) continue;
    throw Error(
        Errc::kDevice,
        fmt::format("tensor {} did not arrive as other ranks sent it (hash {} "
                    "instead of {}): check the GPUs' links and memory for errors, or read "
                    "everything on every rank with --spread never",
                    work.program.tensors[tensors[i]].name, to_hex(found[i]), to_hex(served)));
  }
  for (std::size_t t = 0; t < from.size(); ++t) {
    if (const auto alias = work.program.tensors[t].alias) result.served[t] = result.served[*alias];
  }
  result.seconds += seconds_since(start);
}

LoadResult load_alone(const LoadPlan& plan, const CopyProgram& program,
                      const Checkpoint& checkpoint, SlabMemory& memory, const LoadOptions& options,
                      LoadProgress& progress, const Cancel& cancel) {
  const ReadPlan reads = plan_own_reads(held_rows(program, plan, 0), 0);
  const LoadWork work{plan, program, checkpoint, reads, memory};
  LoadResult result = load(work, options, progress, cancel);
  finish_load(result, work, {}, options, cancel);
  return result;
}

std::string encode_given(const std::vector<GivenHash>& given) {
  std::string bytes;
  for (const GivenHash& g : given) {
    const std::array<std::uint64_t, 4> record{g.owner, g.tensor, g.hash.lo, g.hash.hi};
    bytes.append(reinterpret_cast<const char*>(record.data()), sizeof record);
  }
  return bytes;
}

std::vector<GivenHash> decode_given(std::string_view bytes) {
  std::array<std::uint64_t, 4> record{};
  if (bytes.size() % sizeof record != 0) {
    throw Error(Errc::kInternal, fmt::format("{} bytes are no list of hashes", bytes.size()));
  }
  std::vector<GivenHash> given(bytes.size() / sizeof record);
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::memcpy(record.data(), bytes.data() + i * sizeof record, sizeof record);
    given[i] = {static_cast<std::uint32_t>(record[0]),
                static_cast<std::uint32_t>(record[1]),
                {.lo = record[2], .hi = record[3]}};
  }
  return given;
}

}  // namespace preload
