// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_exchange.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/nccl_library.hpp"
#include "comm/tcp.hpp"
#include "comm/watchdog.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLetGo = std::chrono::seconds(10);

std::string remedy() {
  return fmt::format(
      "the ranks do not reach each other; NCCL_SOCKET_IFNAME names the interface (here: {}), "
      "NCCL_DEBUG=INFO shows what NCCL tries",
      host_interfaces());
}

class NcclExchange final : public RankExchange {
 public:
  NcclExchange(NcclLibrary library, const ncclUniqueId& id, int rank, int count, const Wait& wait)
      : library_(std::move(library)), cancel_(wait.cancel) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // NCCL is asked not to block, but it calls the driver, which may.
    const Watchdog watchdog(
        2 * wait.timeout, exit_status(Errc::kLauncher),
        fmt::format("rank {}: NCCL hangs in its start on {}: {}", rank, host_name(), remedy()));
    const ncclResult_t result = library_.comm_init_rank_config(&comm_, count, id, rank, &config);
    try {
      library_.check(result, "starting NCCL", comm_);
      settle("starting NCCL", wait.timeout, nullptr);
    } catch (...) {
      abort();
      throw;
    }
  }
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  // Nothing is queued any more; a communicator that does not end by itself is given up.
  ~NcclExchange() override {
    if (comm_ == nullptr) return;
    try {
      library_.check(library_.comm_finalize(comm_), "ending NCCL", comm_);
      settle("ending NCCL", kLetGo, nullptr);
      library_.comm_destroy(std::exchange(comm_, nullptr));
    } catch (const Error&) {
      abort();
    }
  }

  void exchange(std::span<const Message> out, std::span<const Message> in, void* stream,
                const std::atomic<bool>& stop) override {
    auto* const on = static_cast<cudaStream_t>(stream);
    NcclGroup group(library_, "queueing an NCCL group");
    for (const Message& message : in) {
      library_.check(library_.recv(message.data, message.bytes, ncclUint8,
                                   static_cast<int>(message.rank), comm_, on),
                     "receiving through NCCL", comm_);
    }
    for (const Message& message : out) {
      library_.check(library_.send(message.data, message.bytes, ncclUint8,
                                   static_cast<int>(message.rank), comm_, on),
                     "sending through NCCL", comm_);
    }
    group.end();
    settle("queueing an NCCL group", std::nullopt, &stop);
  }

  void check() override { library_.state(comm_, "exchanging weights through NCCL"); }

  void abort() noexcept override {
    if (comm_ == nullptr) return;
    const Watchdog watchdog(2 * kLetGo, exit_status(Errc::kLauncher),
                            fmt::format("NCCL did not give up a communicator on {} within {} s",
                                        host_name(), 2 * kLetGo.count()));
    library_.comm_abort(std::exchange(comm_, nullptr));
  }

 private:
  // Until NCCL is done with what it was asked on the host's side.
  void settle(const char* what, std::optional<std::chrono::seconds> timeout,
              const std::atomic<bool>* stop) const {
    const auto start = Clock::now();
    library_.settle(comm_, what, [&] {
      cancel_.check();
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
        throw Error(Errc::kInternal, fmt::format("stopped while {}", what));
      }
      if (timeout && Clock::now() - start >= *timeout) {
        throw Error(Errc::kLauncher, fmt::format("{} on {} took more than {} s: {}", what,
                                                 host_name(), timeout->count(), remedy()));
      }
    });
  }

  const NcclLibrary library_;
  const Cancel& cancel_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::string nccl_unavailable(const std::string& library) {
  try {
    const NcclLibrary opened(library);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::unique_ptr<RankExchange> make_nccl_exchange(Group& group, const NcclRanks& ranks,
                                                 const std::string& library, const Wait& wait) {
  NcclLibrary opened(library);
  ncclUniqueId id{};
  std::string mine;
  if (group.rank() == ranks.first) {
    opened.check(opened.get_unique_id(&id), "naming an NCCL communicator");
    mine.assign(reinterpret_cast<const char*>(&id), sizeof id);
  }
  const std::string root = group.all_gather(mine, wait).at(static_cast<std::size_t>(ranks.first));
  if (root.size() != sizeof id) {
    throw Error(Errc::kLauncher,
                fmt::format("rank {} has no NCCL communicator to offer", ranks.first));
  }
  std::memcpy(&id, root.data(), sizeof id);
  log::debug(fmt::format("NCCL {}", opened.version()));
  return std::make_unique<NcclExchange>(std::move(opened), id, group.rank() - ranks.first,
                                        ranks.count, wait);
}

}  // namespace preload
