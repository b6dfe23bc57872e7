// SPDX-License-Identifier: Apache-2.0
#include "fake_nccl.hpp"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

// The interface as NCCL publishes it (src/include/plugin/tuner/tuner_v4.h and tuner_v5.h), written
// down here once more: what the plugin believes of it must not be what it is tested with.
extern "C" {
typedef int ncclResult_t;
typedef int ncclFunc_t;
typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char* file, int line,
                                  const char* fmt, ...);
struct ncclNvlDomainInfo_v5_t {
  int nNvlDomains, minRanksPerNvlDomain, maxRanksPerNvlDomain;
};
struct ncclTunerConstants_v5_t {
  double baseLatencies[7][3];
  double hwLatencies[3][7][3];
  double bandwidths[5][4][3];
};
typedef ncclResult_t (*getCollInfo_t)(void* context, ncclFunc_t collType, size_t nBytes,
                                      int numPipeOps, float** collCostTable, int numAlgo,
                                      int numProto, int regBuff, int* nChannels);
struct ncclTuner_v4_t {
  const char* name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t logFunction, void** context);
  getCollInfo_t getCollInfo;
  ncclResult_t (*destroy)(void* context);
};
struct ncclTuner_v5_t {
  const char* name;
  ncclResult_t (*init)(void** ctx, uint64_t commId, size_t nRanks, size_t nNodes,
                       ncclDebugLogger_t logFunction, ncclNvlDomainInfo_v5_t* nvlDomainInfo,
                       ncclTunerConstants_v5_t* constants);
  getCollInfo_t getCollInfo;
  ncclResult_t (*finalize)(void* context);
};
}

namespace preload::test {

struct FakeCommunicator {
  void* library = nullptr;
  int abi = 0;
  void* context = nullptr;
  getCollInfo_t get_coll_info = nullptr;
  ncclResult_t (*finish)(void* context) = nullptr;
};

namespace {

std::mutex log_mutex;
std::string log_lines;

void log(int level, unsigned long, const char*, int, const char* format, ...) {
  char line[4096];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(log_mutex);
  log_lines += level == 2 ? "WARN " : "INFO ";
  log_lines += line;
  log_lines += '\n';
}

const char* take_log() {
  thread_local std::string taken;
  const std::lock_guard lock(log_mutex);
  taken = std::move(log_lines);
  log_lines.clear();
  return taken.c_str();
}

int form_v5(FakeCommunicator& communicator, const ncclTuner_v5_t& plugin, std::size_t ranks,
            std::size_t nodes) {
  communicator.abi = 5;
  communicator.get_coll_info = plugin.getCollInfo;
  communicator.finish = plugin.finalize;
  ncclNvlDomainInfo_v5_t domains{1, static_cast<int>(ranks), static_cast<int>(ranks)};
  ncclTunerConstants_v5_t constants{};
  const int result = plugin.init(&communicator.context, 0x5eedULL + ranks, ranks, nodes, log,
                                 &domains, &constants);
  // NCCL's model goes by these from here on.
  const unsigned char* const bytes = reinterpret_cast<const unsigned char*>(&constants);
  for (std::size_t i = 0; i < sizeof constants; ++i) {
    if (bytes[i] != 0) return -1;
  }
  return result;
}

int form_v4(FakeCommunicator& communicator, const ncclTuner_v4_t& plugin, std::size_t ranks,
            std::size_t nodes) {
  communicator.abi = 4;
  communicator.get_coll_info = plugin.getCollInfo;
  communicator.finish = plugin.destroy;
  return plugin.init(ranks, nodes, log, &communicator.context);
}

FakeCommunicator* form(const char* path, std::size_t ranks, std::size_t nodes) {
  auto* const communicator = new FakeCommunicator;
  communicator->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (communicator->library != nullptr) {
    const auto* const v5 = FAKE_NCCL_VERSION < 22800
                               ? nullptr
                               : static_cast<const ncclTuner_v5_t*>(
                                     dlsym(communicator->library, "ncclTunerPlugin_v5"));
    const auto* const v4 =
        static_cast<const ncclTuner_v4_t*>(dlsym(communicator->library, "ncclTunerPlugin_v4"));
    if (v5 != nullptr && form_v5(*communicator, *v5, ranks, nodes) == 0) return communicator;
    if (v5 == nullptr && v4 != nullptr && form_v4(*communicator, *v4, ranks, nodes) == 0) {
      return communicator;
    }
    dlclose(communicator->library);
  }
  delete communicator;
  return nullptr;
}

int abi(const FakeCommunicator* communicator) { return communicator->abi; }

// As topoGetAlgoInfo does: the first of the cheapest that are offered.
FakeAnswer ask(FakeCommunicator* communicator, const FakeQuestion& question) {
  FakeAnswer answer;
  answer.costs = question.costs;
  answer.result = communicator->get_coll_info(
      communicator->context, question.collective, question.bytes, question.pipelined_ops,
      reinterpret_cast<float**>(answer.costs.values.data()), question.costs.algorithms,
      question.costs.protocols, question.registered_buffers, &answer.channels);
  float least = 3600000000.0F;
  for (int algorithm = 0; algorithm < answer.costs.algorithms; ++algorithm) {
    for (int protocol = 0; protocol < answer.costs.protocols; ++protocol) {
      const float cost = answer.costs.at(algorithm, protocol);
      if (cost < 0.0F || cost >= least) continue;
      least = cost;
      answer.algorithm = algorithm;
      answer.protocol = protocol;
    }
  }
  return answer;
}

int destroy(FakeCommunicator* communicator) {
  const int result = communicator->finish(communicator->context);
  dlclose(communicator->library);
  delete communicator;
  return result;
}

}  // namespace
}  // namespace preload::test

#pragma GCC visibility push(default)
extern "C" {
extern const preload::test::FakeNcclFunctions fake_nccl_functions;
const preload::test::FakeNcclFunctions fake_nccl_functions{
    preload::test::form, preload::test::abi, preload::test::ask, preload::test::destroy,
    preload::test::take_log};
#if !FAKE_NCCL_WITHOUT_VERSION
int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return 0;
}
#endif
}
#pragma GCC visibility pop
