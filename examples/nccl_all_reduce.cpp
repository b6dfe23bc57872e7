// SPDX-License-Identifier: Apache-2.0
//
// What a tuning table is worth: an all-reduce program of its own that loads preload's tuner plugin
// as any program does, times each size on a communicator without the table and on one with it,
// block by block in turn, and shows what NCCL took.
//
//   NCCL_TUNER_PLUGIN=/opt/preload/lib/libnccl-tuner-preload.so PRELOAD_TUNER_TABLE=table.json
//       nccl_all_reduce --ranks 2 --devices 0,1
//
// starts two processes on this machine, one for each GPU. --separate-hosts makes NCCL take each for
// a machine of its own, so that they meet through the network's code, also on one GPU (--devices
// 0,0). Across machines: one process for each GPU by any launcher, with RANK and WORLD_SIZE set (or
// --rank and --ranks) and --id FILE on a file system that all see, where FILE is not there yet.
//
// Exits 0; 1 when a size is slower with the table than without, beyond noise; 2 when something
// failed.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <preload/nccl_tuner.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "nccl_ranks.hpp"

namespace {

constexpr int kAllReduce = 4;  // as NCCL numbers it for tuners
// Two communicators have other buffers at other addresses: less than this tells nothing.
constexpr double kTolerance = 0.02;

// The plugin that NCCL has loaded, asked what it was asked.
class Plugin {
 public:
  Plugin() {
    const std::string name = environment("NCCL_TUNER_PLUGIN");
    for (const std::string& path : {name, "libnccl-tuner-" + name + ".so"}) {
      if (library_ == nullptr) library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    }
    if (library_ == nullptr) {
      throw std::runtime_error(
          "NCCL has not loaded the plugin: set NCCL_TUNER_PLUGIN to the path "
          "of libnccl-tuner-preload.so");
    }
    find("preload_nccl_tuner_communicators", communicators_);
    find("preload_nccl_tuner_last_call", last_call_);
  }

  preload_nccl_tuner_communicator newest() const {
    std::vector<preload_nccl_tuner_communicator> all(communicators_(nullptr, 0));
    if (all.empty() || communicators_(all.data(), all.size()) == 0) {
      throw std::runtime_error("NCCL told the plugin of no communicator");
    }
    return all.back();
  }
  preload_nccl_tuner_call last_call(std::uint64_t id) const {
    preload_nccl_tuner_call call{};
    if (last_call_(id, kAllReduce, &call) != 0) throw std::runtime_error("NCCL asked nothing");
    return call;
  }

 private:
  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("the plugin has no ") + name);
  }

  void* library_ = nullptr;
  decltype(&preload_nccl_tuner_communicators) communicators_ = nullptr;
  decltype(&preload_nccl_tuner_last_call) last_call_ = nullptr;
};

// One of the two communicators, and its all-reduces of one size.
class Side {
 public:
  Side(const Options& options, const ncclUniqueId& id, cudaStream_t stream)
      : options_(options), stream_(stream) {
    nccl(ncclCommInitRank(&communicator_, options.ranks, id, options.rank), "starting NCCL");
  }
  ~Side() {
    drop_graph();
    ncclCommDestroy(communicator_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  ncclComm_t get() const { return communicator_; }

  // From here on a block is `iterations` all-reduces of `bytes`.
  void prepare(const void* from, void* to, std::size_t bytes, int iterations) {
    drop_graph();
    from_ = from;
    to_ = to;
    bytes_ = bytes;
    iterations_ = iterations;
    if (options_.graph) {
      cudaGraph_t graph = nullptr;
      cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
      enqueue();
      cuda(cudaStreamEndCapture(stream_, &graph), "capturing");
      cuda(cudaGraphInstantiate(&graph_, graph, 0), "making a CUDA graph");
      cuda(cudaGraphDestroy(graph), "dropping a CUDA graph");
    }
    block();
  }

  void block() {
    if (graph_ != nullptr) {
      cuda(cudaGraphLaunch(graph_, stream_), "launching a CUDA graph");
    } else {
      enqueue();
    }
  }

 private:
  void enqueue() {
    for (int i = 0; i < iterations_; ++i) {
      nccl(ncclAllReduce(from_, to_, bytes_ / 2, ncclBfloat16, ncclSum, communicator_, stream_),
           "all-reduce");
    }
  }
  void drop_graph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    graph_ = nullptr;
  }

  const Options& options_;
  const cudaStream_t stream_;
  ncclComm_t communicator_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  const void* from_ = nullptr;
  void* to_ = nullptr;
  std::size_t bytes_ = 0;
  int iterations_ = 0;
};

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

std::string text_of(int algorithm, int protocol, int channels) {
  static const char* const kAlgorithms[] = {
      "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
  static const char* const kProtocols[] = {"ll", "ll128", "simple"};
  if (algorithm < 0 || algorithm > 6 || protocol < 0 || protocol > 2) return "?";
  std::string text = std::string(kAlgorithms[algorithm]) + "/" + kProtocols[protocol];
  if (channels != 0) text += " x" + std::to_string(channels);
  return text;
}

class Comparison {
 public:
  explicit Comparison(const Options& options) : options_(options) {
    int there = 0;
    cuda(cudaGetDeviceCount(&there), "counting GPUs");
    const auto rank = static_cast<std::size_t>(options.rank);
    cuda(cudaSetDevice(options.devices.empty() ? options.rank % there : options.devices.at(rank)),
         "taking a GPU");
    cuda(cudaStreamCreate(&stream_), "making a stream");
    for (cudaEvent_t* event : {&begin_, &end_}) cuda(cudaEventCreate(event), "making an event");
    const std::size_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
    for (void** buffer : {&from_, &to_}) cuda(cudaMalloc(buffer, most), "taking GPU memory");
    const std::vector<std::uint16_t> ones(most / 2, 0x3f80);  // 1.0
    cuda(cudaMemcpy(from_, ones.data(), most, cudaMemcpyHostToDevice), "filling a buffer");
  }

  // Every rank takes part; rank 0 prints. How many sizes are slower with the table.
  int run() {
    const std::string table = environment("PRELOAD_TUNER_TABLE");
    if (table.empty()) throw std::runtime_error("PRELOAD_TUNER_TABLE is not set: name a table");
    const std::vector<ncclUniqueId> ids = share_ids(options_, 2);
    unsetenv("PRELOAD_TUNER_TABLE");
    Side without(options_, ids[0], stream_);
    const Plugin plugin;
    const std::uint64_t without_id = plugin.newest().id;
    setenv("PRELOAD_TUNER_TABLE", table.c_str(), 1);
    Side with(options_, ids[1], stream_);
    const preload_nccl_tuner_communicator tuned = plugin.newest();
    if (tuned.table != PRELOAD_NCCL_TUNER_TABLE_IN_USE) {
      throw std::runtime_error("the plugin refuses '" + table + "': NCCL_DEBUG=WARN shows why");
    }
    if (options_.rank == 0) {
      std::printf("NCCL %d, %llu ranks on %llu nodes, %u entries\n", tuned.nccl_version,
                  static_cast<unsigned long long>(tuned.ranks),
                  static_cast<unsigned long long>(tuned.nodes), tuned.entries);
      std::printf("%12s %12s %12s %7s %7s  %-18s %-18s %s\n", "bytes", "without us", "with us",
                  "gain", "noise", "without", "with", "choice");
    }
    int slower = 0;
    for (const std::size_t bytes : options_.sizes) {
      // Small ones in long blocks, so that a block is more than the launch of it.
      const int iterations = bytes <= (std::size_t{1} << 20) ? 20 : 5;
      for (Side* side : {&without, &with}) side->prepare(from_, to_, bytes, iterations);
      // Before the times, whose own reduction goes through one of the two communicators.
      const preload_nccl_tuner_call own = plugin.last_call(without_id);
      const preload_nccl_tuner_call chosen = plugin.last_call(tuned.id);
      check_result(bytes);
      std::vector<double> times[2];
      for (int i = 0; i < options_.repeats; ++i) {
        // In turn, and who is first in turn as well.
        for (const int which : {i % 2, 1 - i % 2}) {
          times[which].push_back(time(which == 0 ? without : with, iterations, without.get()));
        }
      }
      slower += report(bytes, times[0], times[1], own, chosen);
    }
    return slower;
  }

 private:
  // Microseconds of one all-reduce, of the rank that took longest.
  double time(Side& side, int iterations, ncclComm_t ranks) {
    double* const longest = static_cast<double*>(to_);
    cuda(cudaEventRecord(begin_, stream_), "timing");
    side.block();
    cuda(cudaEventRecord(end_, stream_), "timing");
    cuda(cudaEventSynchronize(end_), "all-reducing");
    float milliseconds = 0;
    cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "timing");
    double microseconds = 1000.0 * static_cast<double>(milliseconds) / iterations;
    // Also what brings the ranks together before the next block.
    cuda(cudaMemcpyAsync(longest, &microseconds, sizeof(double), cudaMemcpyDefault, stream_),
         "time");
    nccl(ncclAllReduce(longest, longest, 1, ncclFloat64, ncclMax, ranks, stream_), "time");
    cuda(cudaMemcpyAsync(&microseconds, longest, sizeof(double), cudaMemcpyDefault, stream_),
         "time");
    cuda(cudaStreamSynchronize(stream_), "all-reducing");
    return microseconds;
  }

  // Of the block before: a sum of ones.
  void check_result(std::size_t bytes) {
    std::vector<std::uint16_t> sums(bytes / 2);
    cuda(cudaStreamSynchronize(stream_), "all-reducing");
    cuda(cudaMemcpy(sums.data(), to_, bytes, cudaMemcpyDeviceToHost), "reading the result");
    const auto value = static_cast<float>(options_.ranks);
    std::uint32_t bits = 0;
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof bits, reinterpret_cast<char*>(&bits));
    const auto wrong = std::count_if(sums.begin(), sums.end(),
                                     [&](std::uint16_t sum) { return sum != bits >> 16; });
    if (wrong != 0) {
      throw std::runtime_error(std::to_string(wrong) + " wrong sums in " + std::to_string(bytes) +
                               " bytes");
    }
  }

  int report(std::size_t bytes, const std::vector<double>& without, const std::vector<double>& with,
             const preload_nccl_tuner_call& own, const preload_nccl_tuner_call& tuned) const {
    if (options_.rank != 0) return 0;
    const double before = quantile(without, 0.5);
    const double after = quantile(with, 0.5);
    const double noise = quantile(without, 0.75) / before - 1.0;
    std::size_t lost = 0;
    for (std::size_t i = 0; i < with.size(); ++i) lost += with[i] > without[i] ? 1 : 0;
    // Beyond the scatter of NCCL's own times, and in four of five pairs.
    const bool slower =
        after > before * (1.0 + std::max(noise, kTolerance)) && 5 * lost >= 4 * with.size();
    const std::string was = text_of(own.algorithm, own.protocol, own.channels);
    const std::string is = text_of(tuned.algorithm, tuned.protocol, tuned.channels);
    const bool chosen = tuned.source == PRELOAD_NCCL_TUNER_FROM_TABLE;
    std::printf("%12zu %12.2f %12.2f %+6.1f%% %6.1f%%  %-18s %-18s %s\n", bytes, before, after,
                100.0 * (before / after - 1.0), 100.0 * noise, was.c_str(), is.c_str(),
                slower ? "SLOWER" : (chosen ? "table" : "own"));
    std::fflush(stdout);
    return slower ? 1 : 0;
  }

  const Options& options_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  void* from_ = nullptr;
  void* to_ = nullptr;
};

int run_rank(const Options& options) {
  try {
    if (options.separate_hosts) {
      setenv("NCCL_HOSTID", ("nccl_all_reduce-" + std::to_string(options.rank)).c_str(), 1);
    }
    return Comparison(options).run() == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_all_reduce: rank %d: %s\n", options.rank, error.what());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    return options.rank < 0 ? run_here(options, run_rank) : run_rank(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_all_reduce: %s\n%s", error.what(), kUsage);
    return 2;
  }
}
