// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cxxopts.hpp>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/cancel.hpp"
#include "bench/limits.hpp"
#include "load/loader.hpp"
#include "memory/device.hpp"
#include "model/layout.hpp"
#include "plan/load_plan.hpp"

namespace {

using namespace preload;

struct Options {
  std::string model;
  bool cuda = false;
  int runs = 5;
  LoadOptions load;
  bool json = false;
  bool cold = false;
};

Options parse(int argc, char** argv) {
  cxxopts::Options options("preload_load_bench",
                           "Loads a checkpoint that is in the page cache, several times, and sets "
                           "the median beside the limit measured in the same run.");
  options.positional_help("MODEL_DIR");
  options.add_options()("model", "checkpoint directory", cxxopts::value<std::string>())(
      "device", "cuda or host; default: cuda where there is a GPU", cxxopts::value<std::string>())(
      "runs", "timed loads, after one to warm up", cxxopts::value<int>()->default_value("5"))(
      "reader-threads", "0: by the CPUs at hand", cxxopts::value<int>()->default_value("0"))(
      "ring-bytes", "host buffers", cxxopts::value<std::string>()->default_value("512M"))(
      "reader", "auto, pread, mmap, direct or uring",
      cxxopts::value<std::string>()->default_value("auto"))(
      "chunk-bytes", "of the ring's chunks", cxxopts::value<std::string>()->default_value("4M"))(
      "drop-caches", "before each load, and measure plain direct reads beside it (root)")(
      "json", "one JSON object on stdout")("h,help", "this text");
  options.parse_positional({"model"});
  const auto parsed = options.parse(argc, argv);
  if (parsed.count("help") != 0 || parsed.count("model") == 0) {
    throw Error(Errc::kUsage, options.help());
  }
  Options result;
  result.model = parsed["model"].as<std::string>();
  result.runs = std::max(1, parsed["runs"].as<int>());
  result.load.threads = parsed["reader-threads"].as<int>();
  const auto ring = parse_bytes(parsed["ring-bytes"].as<std::string>());
  if (!ring) throw Error(Errc::kUsage, "--ring-bytes must be a size such as 256M");
  result.load.ring_bytes = *ring;
  const auto chunk = parse_bytes(parsed["chunk-bytes"].as<std::string>());
  if (!chunk) throw Error(Errc::kUsage, "--chunk-bytes must be a size such as 2M");
  result.load.chunk_bytes = *chunk;
  if (const std::string reader = parsed["reader"].as<std::string>(); reader != "auto") {
    result.load.method = read_method_from_name(reader);
    if (!result.load.method) {
      throw Error(Errc::kUsage, "--reader must be auto, pread, mmap, direct or uring");
    }
  }
  result.cold = parsed.count("drop-caches") != 0;
  result.json = parsed.count("json") != 0;
  result.cuda = visible_device_count() > 0;
  if (parsed.count("device") != 0) {
    const std::string device = parsed["device"].as<std::string>();
    if (device != "cuda" && device != "host") {
      throw Error(Errc::kUsage, "--device must be cuda or host");
    }
    result.cuda = device == "cuda";
  }
  if (result.load.threads <= 0) {
    result.load.threads =
        default_reader_threads(result.cuda ? HandleKind::kVmm : HandleKind::kHost);
  }
  return result;
}

struct Times {
  double load = 0;   // first read to last byte hashed
  double setup = 0;  // before the first read
  ReadMethod method = ReadMethod::kPread;
};

Times load_once(const Options& options, const LoadPlan& plan, const CopyProgram& program,
                const Checkpoint& checkpoint) {
  const auto memory = allocate_slabs(options.cuda ? HandleKind::kVmm : HandleKind::kHost,
                                     plan.slabs.slabs, options.load.device);
  LoadProgress progress;
  const Cancel cancel;
  const LoadResult result =
      load(plan, program, checkpoint, *memory, options.load, progress, cancel);
  return {result.seconds, result.setup_seconds, result.method};
}

double limit_gb_per_s(const Options& options, const Checkpoint& checkpoint) {
  if (options.cold) return bench::direct_read_gb_per_s(checkpoint, options.load.threads);
#ifdef PRELOAD_HAVE_CUDA
  if (options.cuda) return bench::pinned_copy_gb_per_s(options.load.device);
#endif
  return bench::plain_read_gb_per_s(checkpoint, options.load.threads);
}

int run(const Options& options) {
  const Checkpoint checkpoint = open_checkpoint(options.model, {});
  LayoutRequest request;
  request.layout = "hf";
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
  const CopyProgram program = make_program(checkpoint, spec, request, {}, {});
  const LoadPlan plan = plan_load(program, checkpoint);

  if (!options.cold) load_once(options, plan, program, checkpoint);  // fills the page cache
  std::vector<double> seconds;
  std::vector<double> setups;
  std::vector<double> limits;
  ReadMethod method = ReadMethod::kPread;
  for (int i = 0; i < options.runs; ++i) {
    limits.push_back(limit_gb_per_s(options, checkpoint));
    if (options.cold) bench::drop_page_cache();
    const Times times = load_once(options, plan, program, checkpoint);
    method = times.method;
    seconds.push_back(times.load);
    setups.push_back(times.setup);
  }
  const double took = bench::median(seconds);
  const double rate = static_cast<double>(plan.read_bytes) / 1e9 / took;
  const double limit = bench::median(limits);
  const char* const beside = options.cold   ? "plain direct read"
                             : options.cuda ? "pinned host to device"
                                            : "plain parallel read";
  if (options.json) {
    const nlohmann::json json = {{"bytes", plan.read_bytes},
                                 {"seconds", took},
                                 {"setup_seconds", bench::median(setups)},
                                 {"gb_per_s", rate},
                                 {"limit_gb_per_s", limit},
                                 {"limit", beside},
                                 {"ratio", rate / limit},
                                 {"reader", read_method_name(method)},
                                 {"threads", options.load.threads},
                                 {"hot", !options.cold}};
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print(
      "{} in {:.3f} s, {:.1f} GB/s; {} {:.1f} GB/s, ratio {:.3f}; set-up {:.0f} ms; {}, "
      "{} threads, median of {}\n",
      format_bytes(plan.read_bytes), took, rate, beside, limit, rate / limit,
      bench::median(setups) * 1000, read_method_name(method), options.load.threads, options.runs);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
