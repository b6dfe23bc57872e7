// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tuner/communicator.hpp"

namespace preload::tuner {

// All communicators that NCCL holds in this process.
class OpenCommunicators {
 public:
  // Reads the table that PRELOAD_TUNER_TABLE names; what is wrong with it is logged, and the
  // communicator does without. `facts`: all but id, table and entries.
  Communicator& open(preload_nccl_tuner_communicator facts, nccl::Logger log);
  void close(const Communicator* communicator);

  std::vector<preload_nccl_tuner_communicator> list() const;
  // Calls `function` with the communicator of that id while it cannot go; false: there is none.
  template <class Function>
  bool with(std::uint64_t id, Function&& function) const {
    const std::lock_guard lock(mutex_);
    const auto at = open_.find(id);
    if (at == open_.end()) return false;
    std::forward<Function>(function)(*at->second);
    return true;
  }

 private:
  std::vector<Entry> read_table(preload_nccl_tuner_communicator& facts, const NcclLog& log);
  // Once in a process: an engine forms many communicators, and each has the same to say.
  void warn_once(const NcclLog& log, const std::string& text);

  mutable std::mutex mutex_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, std::unique_ptr<Communicator>> open_;
  std::set<std::string> warned_;
};

// The plugin's own: NCCL's interface and the control functions are C and hand no object from one to
// the other.
OpenCommunicators& open_communicators();

}  // namespace preload::tuner
