// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// NCCL's side of a tuner plugin, without a GPU: a library that loads a plugin as NCCL does, asks
// it, and decides from its answer as NCCL does. Built twice: as NCCL 2.28.3, which knows versions 4
// and 5 of the interface, and as NCCL 2.27.5, which knows version 4; and once more, as one that
// exports no ncclGetVersion. Tests open one with dlopen and find fake_nccl_functions.
namespace preload::test {

// Rows of algorithms, columns of protocols; negative: not offered.
struct FakeCosts {
  int algorithms = 7;
  int protocols = 3;
  std::array<float, 64> values = filled();

  float& at(int algorithm, int protocol) {
    return values[static_cast<std::size_t>(algorithm * protocols + protocol)];
  }
  bool operator==(const FakeCosts&) const = default;

 private:
  static constexpr std::array<float, 64> filled() {
    std::array<float, 64> all{};
    all.fill(-1.0F);
    return all;
  }
};

struct FakeQuestion {
  int collective = 4;  // all-reduce
  std::size_t bytes = 0;
  int pipelined_ops = 1;
  int registered_buffers = 0;
  FakeCosts costs{};
};

struct FakeAnswer {
  int result = -1;  // of the plugin's function
  int algorithm = -1;
  int protocol = -1;
  int channels = 0;   // 0: the plugin asked for none
  FakeCosts costs{};  // as the plugin left them
};

struct FakeCommunicator;

struct FakeNcclFunctions {
  // Forms a communicator with the plugin of that path; null when it cannot be loaded. The path
  // stands for NCCL_TUNER_PLUGIN.
  FakeCommunicator* (*form)(const char* plugin, std::size_t ranks, std::size_t nodes);
  int (*abi)(const FakeCommunicator* communicator);  // the interface's version that was found
  FakeAnswer (*ask)(FakeCommunicator* communicator, const FakeQuestion& question);
  int (*destroy)(FakeCommunicator* communicator);  // the plugin's result
  // What plugins logged since the last call, one line each, warnings with "WARN " in front and the
  // others with "INFO ". Valid until the next call on this thread.
  const char* (*take_log)();
};

}  // namespace preload::test
