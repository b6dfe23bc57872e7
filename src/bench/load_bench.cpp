// SPDX-License-Identifier: Apache-2.0
#include "bench/load_bench.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bench/limits.hpp"
#include "bench/load_check.hpp"
#include "bench/load_report.hpp"
#include "bench/page_cache.hpp"
#include "bench/peers.hpp"
#include "load/loader.hpp"
#include "memory/device.hpp"
#include "run/cpu_binding.hpp"

namespace preload::bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The GPU that the bench loads to; nothing for host memory.
std::optional<Device> choose_device(std::optional<bool> cuda) {
  if (cuda == false) return std::nullopt;
  const std::vector<Device> devices = visible_devices();
  if (!devices.empty()) return devices.front();
  if (!cuda) return std::nullopt;
  throw Error(Errc::kDevice,
              fmt::format("--device cuda: {}; measure host memory with --device host",
                          no_devices_reason()));
}

// One rank's part of a model as every run loads it.
class LoadBench {
 public:
  LoadBench(const cli::BenchLoadOptions& options, const std::optional<Device>& device)
      : options_(options),
        device_(device),
        checkpoint_(open_checkpoint(options.model.model, options.model.open)),
        program_(make_program(
            checkpoint_, layout_spec(checkpoint_, options.model.layout, options.model.hf_overrides),
            options.model.layout, options.sizes, coords_of(options.rank, options.sizes))),
        plan_(plan_load(program_, checkpoint_)) {
    for (const std::string& warning : checkpoint_.warnings) log::warn(warning);
    if (plan_.read_bytes == 0) {
      throw Error(Errc::kUsage, fmt::format("rank {} reads nothing of {}: there is nothing to time",
                                            options.rank, options.model.model));
    }
    how_.ring_bytes = options.ring_bytes;
    how_.method = options.reader;
    how_.threads = options.threads > 0 ? options.threads : default_reader_threads(kind());
    how_.device = device ? device->ordinal : 0;
  }

  LoadFigures run() {
    if (options_.cold) check_can_be_cold(checkpoint_);
    LoadCheck check(plan_, program_, checkpoint_, how_.threads);
    settle_limit();
    if (!options_.cold) {
      fill_page_cache(checkpoint_, how_.threads);
      check.check(load_once());  // to warm up
    }
    for (int i = 0; i < options_.runs; ++i) {
      limits_.push_back(measure_limit());
      if (options_.cold) drop_page_cache(checkpoint_);
      const LoadResult result = load_once();
      check.check(result);
      seconds_.push_back(result.seconds);
      setups_.push_back(result.setup_seconds);
      reader_ = read_method_name(result.method);
      threads_ = result.threads;
    }
    return figures(check);
  }

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }

 private:
  HandleKind kind() const noexcept { return device_ ? HandleKind::kVmm : HandleKind::kHost; }

  LoadResult load_once() {
    const auto start = Clock::now();
    const auto memory = allocate_slabs(kind(), plan_.slabs.slabs, how_.device);
    allocations_.push_back(seconds_since(start));
    LoadProgress progress;
    return load_alone(plan_, program_, checkpoint_, *memory, how_, progress, Cancel());
  }

  void settle_limit() {
    if (options_.cold) {
      limit_threads_ = best_direct_read_threads(checkpoint_, how_.threads);
      limit_ = fmt::format("plain O_DIRECT read, {}", counted(limit_threads_, "thread"));
    } else if (device_) {
      limit_ = "pinned host to device";
    } else {
      limit_threads_ = how_.threads;
      limit_ = fmt::format("plain parallel read, {}", counted(limit_threads_, "thread"));
    }
  }

  double measure_limit() const {
    if (options_.cold) return direct_read_gb_per_s(checkpoint_, limit_threads_);
#ifdef PRELOAD_HAVE_CUDA
    if (device_) return pinned_copy_gb_per_s(device_->ordinal);
#endif
    return plain_read_gb_per_s(checkpoint_, limit_threads_);
  }

  LoadFigures figures(const LoadCheck& check) const {
    LoadFigures figures;
    figures.model = options_.model.model;
    figures.device = device_ ? "cuda" : "host";
    figures.gpu = device_ ? device_->name : "";
    figures.bytes = plan_.read_bytes;
    figures.seconds = median(seconds_);
    figures.setup_seconds = median(setups_);
    figures.allocate_seconds = median(allocations_);
    figures.limit_gb_per_s = median(limits_);
    figures.limit = limit_;
    figures.reader = reader_;
    figures.threads = threads_;
    figures.runs = options_.runs;
    figures.hot = !options_.cold;
    figures.tensors = check.tensors();
    return figures;
  }

  const cli::BenchLoadOptions& options_;
  const std::optional<Device>& device_;
  const Checkpoint checkpoint_;
  const CopyProgram program_;
  const LoadPlan plan_;
  LoadOptions how_;
  std::string limit_;
  int limit_threads_ = 0;
  std::vector<double> seconds_, setups_, allocations_, limits_;
  std::string reader_;
  int threads_ = 0;
};

}  // namespace

void run_load_bench(const cli::BenchLoadOptions& options) {
  const std::optional<Device> device = choose_device(options.cuda);
  const run::CpuBinding binding(device ? device->uuid : "host:0");
  log::info(binding.account());
  LoadBench bench(options, device);
  const LoadFigures figures = bench.run();
  const std::vector<PeerFigures> peers = measure_peers(
      {options.peers, device.has_value(), device ? device->ordinal : 0, options.runs, options.cold},
      bench.checkpoint());
  const std::string text = options.json ? report_json(figures, peers) : report_text(figures, peers);
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw Error(Errc::kInternal, "standard output cannot be written");
  }
}

}  // namespace preload::bench
