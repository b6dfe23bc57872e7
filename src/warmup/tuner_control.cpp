// SPDX-License-Identifier: Apache-2.0
#include "warmup/tuner_control.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace preload::warmup {
namespace {

template <class Function>
void resolve(void* plugin, const std::string& path, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(plugin, name));
  if (function != nullptr) return;
  throw Error(Errc::kUsage, fmt::format("{} has no {}: it is not this version's tuner plugin; "
                                        "install preload anew",
                                        path, name));
}

}  // namespace

void PluginTraits::close(Handle handle) noexcept { dlclose(handle); }

TunerControl::TunerControl(const std::string& path) {
  plugin_ = Unique<PluginTraits>(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!plugin_) {
    throw Error(Errc::kUsage, fmt::format("cannot open NCCL's tuner plugin: {}", dlerror()));
  }
  decltype(&::preload_nccl_tuner_abi_version) version = nullptr;
  resolve(plugin_.get(), path, "preload_nccl_tuner_abi_version", version);
  if (version() != PRELOAD_NCCL_TUNER_ABI_VERSION) {
    throw Error(Errc::kUsage,
                fmt::format("{} is of another version of preload: install it anew", path));
  }
  resolve(plugin_.get(), path, "preload_nccl_tuner_communicators", communicators_);
  resolve(plugin_.get(), path, "preload_nccl_tuner_force", force_);
  resolve(plugin_.get(), path, "preload_nccl_tuner_leave", leave_);
  resolve(plugin_.get(), path, "preload_nccl_tuner_last_call", last_call_);
}

std::optional<TunerControl::Formed> TunerControl::last_formed() const {
  std::vector<preload_nccl_tuner_communicator> all(communicators_(nullptr, 0));
  all.resize(std::min(all.size(), communicators_(all.data(), all.size())));
  if (all.empty()) return std::nullopt;
  const preload_nccl_tuner_communicator& last = all.back();
  return Formed{last.id, {static_cast<int>(last.ranks), static_cast<int>(last.nodes)}};
}

void TunerControl::answer(std::uint64_t id, tuner::Collective collective,
                          const Choice& choice) const {
  const int which = static_cast<int>(collective);
  const int result = choice.candidate
                         ? force_(id, which, static_cast<int>(choice.candidate->algorithm),
                                  static_cast<int>(choice.candidate->protocol), choice.channels)
                         : leave_(id, which);
  if (result == 0) return;
  throw Error(Errc::kInternal, "NCCL's tuner plugin refuses to answer as it is told");
}

Offer TunerControl::last_offer(std::uint64_t id, tuner::Collective collective) const {
  Offer offer;
  preload_nccl_tuner_call call{};
  if (last_call_(id, static_cast<int>(collective), &call) != 0) return offer;
  offer.registered_buffers = call.registered_buffers != 0;
  offer.pipelined_ops = call.pipelined_ops;
  if (call.unknown_candidates != 0 || call.own_algorithm < 0) return offer;
  for (int algorithm = 0; algorithm < tuner::kAlgorithms; ++algorithm) {
    for (int protocol = 0; protocol < tuner::kProtocols; ++protocol) {
      if (call.costs[algorithm][protocol] < 0) continue;
      offer.offered.push_back(
          {static_cast<tuner::Algorithm>(algorithm), static_cast<tuner::Protocol>(protocol)});
    }
  }
  offer.own = {static_cast<tuner::Algorithm>(call.own_algorithm),
               static_cast<tuner::Protocol>(call.own_protocol)};
  return offer;
}

bool TunerControl::obeyed(std::uint64_t id, tuner::Collective collective,
                          const Choice& choice) const {
  if (!choice.candidate) return true;
  preload_nccl_tuner_call call{};
  return last_call_(id, static_cast<int>(collective), &call) == 0 &&
         call.source == PRELOAD_NCCL_TUNER_FROM_FORCE &&
         call.algorithm == static_cast<int>(choice.candidate->algorithm) &&
         call.protocol == static_cast<int>(choice.candidate->protocol);
}

}  // namespace preload::warmup
