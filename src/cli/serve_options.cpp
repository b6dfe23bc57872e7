// SPDX-License-Identifier: Apache-2.0
#include "cli/serve_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/counted.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "cli/kernel_config.hpp"
#include "cli/tuning_options.hpp"
#include "model/expert_share.hpp"

namespace preload::cli {
namespace {

// vLLM's names of --dtype; an unset optional is auto.
std::optional<DType> parse_dtype(const std::string& text) {
  constexpr auto kNames = std::to_array<std::pair<std::string_view, DType>>({
      {"half", DType::kF16},
      {"float16", DType::kF16},
      {"bfloat16", DType::kBF16},
      {"float", DType::kF32},
      {"float32", DType::kF32},
  });
  if (text == "auto") return std::nullopt;
  for (const auto& [name, dtype] : kNames) {
    if (name == text) return dtype;
  }
  throw Error(
      Errc::kUsage,
      fmt::format("--dtype must be one of auto, half, float16, bfloat16, float, float32: '{}'",
                  text));
}

// vLLM 0.32 config/cache.py, CacheDType.
const std::vector<std::string_view> kKvCacheDtypes = {"auto",
                                                      "float16",
                                                      "bfloat16",
                                                      "fp8",
                                                      "fp8_e4m3",
                                                      "fp8_e5m2",
                                                      "fp8_inc",
                                                      "fp8_ds_mla",
                                                      "nvfp4_ds_mla",
                                                      "turboquant_k8v4",
                                                      "turboquant_4bit_nc",
                                                      "turboquant_k3v4_nc",
                                                      "turboquant_3bit_nc",
                                                      "ultraquant_4bit",
                                                      "int4_per_token_head",
                                                      "int8_per_token_head",
                                                      "fp8_per_token_head",
                                                      "nvfp4",
                                                      "nvfp4_4over6"};

void check_load_format(const ParsedOptions& options) {
  const std::string format = options.text("load-format").value_or("auto");
  if (format == "ipc_cache") {
    throw Error(Errc::kUsage,
                "--load-format ipc_cache is how an engine attaches to a daemon; the daemon reads "
                "the checkpoint itself: use auto or safetensors");
  }
  options.choice("load-format", {"auto", "safetensors"});
}

std::string check_slot(std::string slot) {
  const bool good = !slot.empty() && slot.size() <= 32 && std::ranges::all_of(slot, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!good) {
    throw Error(Errc::kUsage,
                fmt::format("--slot must be 1 to 32 characters of a-z, 0-9 and '-': '{}'", slot));
  }
  return slot;
}

// "10,11,11": the layers of each of `stages`.
std::vector<int> parse_stage_layers(const std::string& text, int stages) {
  std::vector<int> layers;
  for (const char *at = text.data(), *end = at + text.size(); at <= end; ++at) {
    int count = 0;
    const auto [next, failure] = std::from_chars(at, end, count);
    if (failure != std::errc{} || count < 1 || (next != end && *next != ',')) {
      throw Error(Errc::kUsage,
                  fmt::format("--pipeline-layers must be numbers of layers, 1 or more, with commas "
                              "between, e.g. 10,11,11: '{}'",
                              text));
    }
    layers.push_back(count);
    at = next;
  }
  if (layers.size() != static_cast<std::size_t>(stages)) {
    throw Error(Errc::kUsage, fmt::format("--pipeline-layers {} names {}, "
                                          "--pipeline-parallel-size is {}",
                                          text, counted(layers.size(), "stage"), stages));
  }
  return layers;
}

// The sizes without the ranks' number, which only a launcher or the sizes themselves give.
ParallelSizes with_rules(ParallelSizes sizes, const ModelOptions& model) {
  sizes.expert_parallel = model.expert_parallel;
  sizes.stage_layers = model.stage_layers;
  return sizes;
}

// What a keeper holds has to outlive its process; cuda-ipc memory does not.
KeeperUse keeper_option(const ParsedOptions& options, HandleKind kind) {
  const auto chosen = options.choice("keeper", {"off", "auto", "require"});
  const auto use = chosen ? static_cast<KeeperUse>(*chosen) : KeeperUse::kAuto;
  if (kind != HandleKind::kCudaIpc) return use;
  if (use == KeeperUse::kRequire) {
    throw Error(Errc::kUsage,
                "--keeper require and --export cuda-ipc contradict each other: such memory ends "
                "with its process; use --export vmm");
  }
  return KeeperUse::kOff;
}

}  // namespace

ModelOptions model_options(const ParsedOptions& options) {
  ModelOptions model;
  model.model = options.text("model").value_or("");
  if (options.has("model") && model.model.empty()) {
    throw Error(Errc::kUsage, "--model is empty: give a checkpoint directory or a hub id");
  }
  model.tp = options.number("tensor-parallel-size", 1).value_or(1);
  model.pp = options.number("pipeline-parallel-size", 1).value_or(1);
  model.dp = options.number("data-parallel-size", 1);
  model.expert_parallel = options.has("enable-expert-parallel");
  if (const auto layers = options.text("pipeline-layers")) {
    model.stage_layers = parse_stage_layers(*layers, model.pp);
  }
  if (options.choice("expert-placement-strategy", {"linear", "round_robin"}).value_or(0) == 1) {
    model.layout.placement = ExpertPlacement::kRoundRobin;
  }
  if (options.choice("all2all-backend", all2all_backends())) {
    model.layout.all2all_backend = *options.text("all2all-backend");
  }
  if (const auto kernels = options.text("kernel-config")) {
    model.layout.moe_backend = moe_backend_of(*kernels);
  }
  if (options.choice("kv-cache-dtype", kKvCacheDtypes)) {
    model.layout.kv_cache_dtype = *options.text("kv-cache-dtype");
  }
  model.open.revision = options.text("revision").value_or("main");
  std::error_code ignored;
  if (options.text("revision") && std::filesystem::is_directory(model.model, ignored)) {
    log::warn(
        fmt::format("--revision {} is not looked at: '{}' is a directory, and holds what it "
                    "holds",
                    model.open.revision, model.model));
  }
  model.open.rebuild_index = options.has("rebuild-index");
  check_load_format(options);
  model.layout.dtype = parse_dtype(options.text("dtype").value_or("auto"));
  options.choice("layout", {"vllm", "transformers", "hf"});
  model.layout.layout = options.text("layout").value_or("vllm");
  model.layout.ignore = options.all("ignore-tensor");
  check_layout_sizes(model.layout, {.dp = model.dp.value_or(1),
                                    .pp = model.pp,
                                    .tp = model.tp,
                                    .expert_parallel = model.expert_parallel});
  model.hf_overrides = options.text("hf-overrides").value_or("");
  if (!model.hf_overrides.empty() &&
      !nlohmann::json::parse(model.hf_overrides, nullptr, false).is_object()) {
    throw Error(Errc::kUsage,
                fmt::format("--hf-overrides must be a JSON object: {}", model.hf_overrides));
  }
  if (const auto config = options.text("speculative-config")) {
    model.speculative = parse_speculative_config(*config, model.tp);
  }
  return model;
}

Spread spread_option(const ParsedOptions& options) {
  const auto chosen = options.choice("spread", {"auto", "always", "never"});
  return chosen ? static_cast<Spread>(*chosen) : Spread::kAuto;
}

ParallelSizes own_sizes(const ModelOptions& model) {
  const std::int64_t dp = model.dp.value_or(1);
  const std::int64_t most = std::numeric_limits<int>::max();
  if (dp > most / model.pp || dp * model.pp > most / model.tp) {
    throw Error(Errc::kUsage, "the parallel sizes make more ranks than any launcher starts");
  }
  return with_rules({static_cast<int>(dp), model.pp, model.tp}, model);
}

ParallelSizes job_sizes(const ModelOptions& model, int world) {
  return with_rules(parallel_sizes(world, model.dp, model.pp, model.tp), model);
}

int rank_option(const ParsedOptions& options, const ParallelSizes& sizes) {
  const int rank = options.number("rank", 0).value_or(0);
  if (rank >= sizes.world()) {
    throw Error(Errc::kUsage, fmt::format("--rank {}: of {} the last is {}", rank,
                                          counted(sizes.world(), "rank"), sizes.world() - 1));
  }
  return rank;
}

std::optional<bool> device_option(const ParsedOptions& options) {
  if (options.text("device") == "rocm") {
    throw Error(Errc::kUsage, "--device rocm is not built yet: use cuda or host");
  }
  const auto device = options.choice("device", {"cuda", "host"});
  if (!device) return std::nullopt;
  return *device == 0;
}

std::optional<std::uint64_t> ring_bytes_option(const ParsedOptions& options) {
  const std::optional<std::string> ring = options.text("ring-bytes");
  if (!ring) return std::nullopt;
  const std::optional<std::uint64_t> bytes = parse_bytes(*ring);
  if (!bytes || *bytes == 0) {
    throw Error(Errc::kUsage,
                fmt::format("--ring-bytes must be a size such as 256M or 1GiB: '{}'", *ring));
  }
  return bytes;
}

std::optional<ReadMethod> reader_option(const ParsedOptions& options) {
  const auto reader = options.choice("reader", {"auto", "pread", "mmap", "direct", "uring"});
  if (!reader || *reader == 0) return std::nullopt;
  const auto method = static_cast<ReadMethod>(*reader - 1);
  require_built(method);
  return method;
}

log::Level log_level_option(const ParsedOptions& options) {
  if (const auto level = options.text("log-level")) return log::parse_level(*level);
  const std::string level = environment("PRELOAD_LOG_LEVEL");  // empty is as good as unset
  return level.empty() ? log::Level::kInfo : log::parse_level(level);
}

ServeOptions parse_serve_options(const std::vector<std::string>& arguments) {
  const ParsedOptions options("serve", arguments);
  ServeOptions serve;
  serve.model = model_options(options);
  if (serve.model.model.empty()) {
    throw Error(Errc::kUsage, "--model is missing: give a checkpoint directory or a hub id");
  }
  serve.cuda = device_option(options);
  if (const auto kind = options.choice("export", {"vmm", "cuda-ipc"})) {
    if (serve.cuda == false) {
      throw Error(Errc::kUsage, "--export is for --device cuda; the host device exports memfds");
    }
    serve.export_kind = *kind == 0 ? HandleKind::kVmm : HandleKind::kCudaIpc;
  }
  if (const auto slot = options.text("slot")) serve.slot = check_slot(*slot);
  serve.socket_dir = socket_dir_option(options);
  serve.ring_bytes = ring_bytes_option(options).value_or(serve.ring_bytes);
  serve.reader = reader_option(options);
  serve.spread = spread_option(options);
  serve.nccl_library = options.text("nccl-library").value_or("");
  serve.threads = options.number("reader-threads", 1).value_or(0);
  serve.reads_in_flight = options.number("reads-in-flight", 1);
  serve.replace = options.has("replace");
  serve.drain_s = options.seconds("drain");
  if (serve.drain_s && !serve.replace)
    throw Error(Errc::kUsage, "--drain is for --replace: it drains the daemon that is replaced");
  serve.keeper = keeper_option(options, serve.export_kind);
  if (const auto seconds = options.number("lease-wait", 0)) {
    serve.lease_wait = std::chrono::seconds(*seconds);
  }
  serve.tuning = tuning_options(options);
  serve.warmup = warmup_options(options);
  serve.log_level = log_level_option(options);
  serve.health_port = options.number("weight-cache-health-port", 0).value_or(0);
  if (serve.health_port > std::numeric_limits<std::uint16_t>::max()) {
    throw Error(Errc::kUsage, fmt::format("--weight-cache-health-port must be 0 to 65535: {}",
                                          serve.health_port));
  }
  if (const auto host = options.text("weight-cache-health-host")) {
    if (serve.health_port == 0) {
      throw Error(Errc::kUsage,
                  "--weight-cache-health-host says where --weight-cache-health-port listens: give "
                  "both, or neither");
    }
    serve.health_host = *host;
  }
  return serve;
}

}  // namespace preload::cli
