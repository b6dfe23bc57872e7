// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <optional>

#include "tuner/nccl_abi.hpp"
#include "tuner/open_communicators.hpp"

// NCCL's side of the plugin. Every function returns success whatever happens: another result would
// not fall back to NCCL's own choice, it would fail the collective or the communicator.
namespace preload::tuner {
namespace {

// Runs `function`; what it throws (no memory) leaves NCCL to itself.
template <class Function>
int always_success(Function&& function) noexcept {
  try {
    function();
  } catch (...) {
  }
  return nccl::kSuccess;
}

int init(std::size_t ranks, std::size_t nodes, std::uint64_t nccl_id, int abi, nccl::Logger log,
         void** context) noexcept {
  if (context == nullptr) return nccl::kSuccess;
  *context = nullptr;
  return always_success([&] {
    preload_nccl_tuner_communicator facts{};
    facts.nccl_id = nccl_id;
    facts.ranks = ranks;
    facts.nodes = nodes;
    facts.abi = abi;
    *context = &open_communicators().open(facts, log);
  });
}

int init_v4(std::size_t ranks, std::size_t nodes, nccl::Logger log, void** context) noexcept {
  return init(ranks, nodes, 0, 4, log, context);
}

int init_v5(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes,
            nccl::Logger log, nccl::NvlDomainsV5*, nccl::ConstantsV5*) noexcept {
  return init(ranks, nodes, communicator, 5, log, context);
}

int get_coll_info(void* context, int collective, std::size_t bytes, int pipelined_ops,
                  float** costs, int algorithms, int protocols, int registered_buffers,
                  int* channels) noexcept {
  if (context == nullptr || costs == nullptr || channels == nullptr || algorithms < 1 ||
      protocols < 1 || collective < 0 || collective >= kCollectives) {
    return nccl::kSuccess;
  }
  return always_success([&] {
    const Question question{.collective = static_cast<Collective>(collective),
                            .bytes = bytes,
                            .pipelined_ops = pipelined_ops,
                            .registered_buffers = registered_buffers != 0};
    // The type says a table of pointers; what NCCL passes is one array of floats.
    const CostTable table(reinterpret_cast<float*>(costs), algorithms, protocols);
    const int wanted = static_cast<Communicator*>(context)->answer(question, table);
    if (wanted != 0) *channels = wanted;
  });
}

int finish(void* context) noexcept {
  if (context == nullptr) return nccl::kSuccess;
  return always_success([&] { open_communicators().close(static_cast<Communicator*>(context)); });
}

constexpr const char* kName = "preload";

}  // namespace
}  // namespace preload::tuner

#pragma GCC visibility push(default)
extern "C" {
extern const preload::tuner::nccl::TunerV4 ncclTunerPlugin_v4;
extern const preload::tuner::nccl::TunerV5 ncclTunerPlugin_v5;
const preload::tuner::nccl::TunerV4 ncclTunerPlugin_v4{
    preload::tuner::kName, preload::tuner::init_v4, preload::tuner::get_coll_info,
    preload::tuner::finish};
const preload::tuner::nccl::TunerV5 ncclTunerPlugin_v5{
    preload::tuner::kName, preload::tuner::init_v5, preload::tuner::get_coll_info,
    preload::tuner::finish};
}
#pragma GCC visibility pop
