// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <vector>

#include "preload/nccl_tuner.h"
#include "tuner/open_communicators.hpp"

using namespace preload::tuner;

namespace {

bool within(int value, int count) { return value >= 0 && value < count; }

// Runs `function` on the communicator and the collective; the C functions' result.
template <class Function>
int control(std::uint64_t id, int collective, Function&& function) noexcept {
  try {
    if (!within(collective, kCollectives)) return -1;
    const bool there = open_communicators().with(id, [&](Communicator& communicator) {
      function(communicator, static_cast<Collective>(collective));
    });
    return there ? 0 : -1;
  } catch (...) {
    return -1;
  }
}

}  // namespace

uint32_t preload_nccl_tuner_abi_version(void) { return PRELOAD_NCCL_TUNER_ABI_VERSION; }

size_t preload_nccl_tuner_communicators(preload_nccl_tuner_communicator* out, size_t capacity) {
  try {
    const auto all = open_communicators().list();
    std::copy_n(all.begin(), std::min(all.size(), out == nullptr ? 0 : capacity), out);
    return all.size();
  } catch (...) {
    return 0;
  }
}

int preload_nccl_tuner_force(uint64_t id, int collective, int algorithm, int protocol,
                             int channels) {
  if (!within(algorithm, kAlgorithms) || !within(protocol, kProtocols) ||
      !within(channels, kMaxChannels + 1)) {
    return -1;
  }
  return control(id, collective, [&](Communicator& communicator, Collective which) {
    communicator.force(
        which, {.candidate = {static_cast<Algorithm>(algorithm), static_cast<Protocol>(protocol)},
                .channels = channels});
  });
}

int preload_nccl_tuner_leave(uint64_t id, int collective) {
  return control(id, collective,
                 [](Communicator& communicator, Collective which) { communicator.leave(which); });
}

int preload_nccl_tuner_use_table(uint64_t id, int collective) {
  return control(id, collective, [](Communicator& communicator, Collective which) {
    communicator.use_table(which);
  });
}

int preload_nccl_tuner_last_call(uint64_t id, int collective, preload_nccl_tuner_call* out) {
  if (out == nullptr) return -1;
  std::optional<preload_nccl_tuner_call> call;
  const int found = control(id, collective, [&](Communicator& communicator, Collective which) {
    call = communicator.last_call(which);
  });
  if (found != 0 || !call) return -1;
  *out = *call;
  return 0;
}
