// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/unique.hpp"
#include "preload/nccl_tuner.h"
#include "tuner/candidate.hpp"
#include "tuner/tuning_table.hpp"
#include "warmup/collective_timer.hpp"

namespace preload::warmup {

struct PluginTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle handle) noexcept;
};

// The hand on NCCL's tuner: the same plugin that NCCL has loaded into this process.
class TunerControl {
 public:
  explicit TunerControl(const std::string& path);  // throws Error(kUsage) when it is not ours

  // The communicator that this process formed last; nothing when NCCL did not load the plugin.
  struct Formed {
    std::uint64_t id = 0;
    tuner::Shape shape;
  };
  std::optional<Formed> last_formed() const;

  void answer(std::uint64_t id, tuner::Collective collective, const Choice& choice) const;
  // What NCCL last asked; nothing offered where it asked for what cannot be chosen.
  Offer last_offer(std::uint64_t id, tuner::Collective collective) const;
  // Whether its last question was answered like that.
  bool obeyed(std::uint64_t id, tuner::Collective collective, const Choice& choice) const;

 private:
  Unique<PluginTraits> plugin_;
  decltype(&::preload_nccl_tuner_communicators) communicators_ = nullptr;
  decltype(&::preload_nccl_tuner_force) force_ = nullptr;
  decltype(&::preload_nccl_tuner_leave) leave_ = nullptr;
  decltype(&::preload_nccl_tuner_last_call) last_call_ = nullptr;
};

}  // namespace preload::warmup
