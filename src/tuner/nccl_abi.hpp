// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// NCCL's interface to tuner plugins, versions 4 (NCCL 2.24 to 2.27) and 5 (from 2.28), declared
// here from its public description so that the plugin builds without NCCL: NVIDIA/nccl,
// src/include/plugin/tuner/tuner_v4.h and tuner_v5.h.
namespace preload::tuner::nccl {

inline constexpr int kSuccess = 0;
// Levels of ncclDebugLogLevel, and flags of ncclDebugLogSubSys.
inline constexpr int kWarn = 2;
inline constexpr int kInfo = 3;
inline constexpr unsigned long kInit = 0x1;
inline constexpr unsigned long kTuning = 0x40;
// Microseconds of an algorithm and protocol that NCCL does not offer.
inline constexpr float kIgnore = -1.0F;

using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
using GetCollInfo = int (*)(void* context, int collective, std::size_t bytes, int pipelined_ops,
                            float** costs, int algorithms, int protocols, int registered_buffers,
                            int* channels);
using Finish = int (*)(void* context);

struct TunerV4 {
  const char* name;
  int (*init)(std::size_t ranks, std::size_t nodes, Logger log, void** context);
  GetCollInfo get_coll_info;
  Finish destroy;
};

// Both are NCCL's and only passed by.
struct NvlDomainsV5;
struct ConstantsV5;

struct TunerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, std::size_t ranks, std::size_t nodes,
              Logger log, NvlDomainsV5* domains, ConstantsV5* constants);
  GetCollInfo get_coll_info;
  Finish finalize;
};

}  // namespace preload::tuner::nccl
