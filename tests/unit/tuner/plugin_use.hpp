// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "preload/nccl_tuner.h"
#include "support/fake_nccl.hpp"
#include "support/temp_dir.hpp"

namespace preload::test {

// One of the libraries that stand for NCCL.
class FakeNccl {
 public:
  static FakeNccl current();      // 2.28.3
  static FakeNccl older();        // 2.27.5
  static FakeNccl unversioned();  // does not tell
  const FakeNcclFunctions& functions() const { return *functions_; }
  std::string take_log() const { return functions_->take_log(); }

 private:
  explicit FakeNccl(const char* path);

  std::shared_ptr<void> library_;
  const FakeNcclFunctions* functions_ = nullptr;
};

// A communicator with the plugin; its end is checked to be a success.
class Formed {
 public:
  Formed(const FakeNccl& nccl, std::size_t ranks, std::size_t nodes = 1);
  ~Formed();
  Formed(const Formed&) = delete;
  Formed& operator=(const Formed&) = delete;

  int abi() const { return nccl_.functions().abi(communicator_); }
  // Checks that the plugin returned success.
  FakeAnswer ask(const FakeQuestion& question) const;

 private:
  const FakeNccl nccl_;
  FakeCommunicator* communicator_;
};

// The control functions of the same plugin, found as a program that measures finds them.
class Control {
 public:
  Control();

  decltype(&::preload_nccl_tuner_abi_version) abi_version = nullptr;
  decltype(&::preload_nccl_tuner_communicators) communicators = nullptr;
  decltype(&::preload_nccl_tuner_force) force = nullptr;
  decltype(&::preload_nccl_tuner_leave) leave = nullptr;
  decltype(&::preload_nccl_tuner_use_table) use_table = nullptr;
  decltype(&::preload_nccl_tuner_last_call) last_call = nullptr;

  preload_nccl_tuner_communicator newest() const;

 private:
  std::shared_ptr<void> library_;
};

// PRELOAD_TUNER_TABLE, and the file that it names, until the end of the scope.
class NamedTable {
 public:
  explicit NamedTable(const std::string& text);

 private:
  TempDir directory_;
  std::optional<ScopedEnv> variable_;
};

// A driver that calls the GPU "Fake GPU 3", in this process until the end of the scope.
std::shared_ptr<void> fake_gpu();
std::string plugin_path();

// What NCCL offers for the all-reduces of sample_table(): ring/ll costs least.
FakeQuestion all_reduce(std::size_t bytes);

inline constexpr int kTree = 0, kRing = 1, kNvls = 4, kPat = 6;
inline constexpr int kLl = 0, kLl128 = 1, kSimple = 2;
inline constexpr int kAllGather = 2, kAllReduce = 4;

}  // namespace preload::test
