// SPDX-License-Identifier: Apache-2.0
#include "warmup/nccl_communicator.hpp"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "comm/tcp.hpp"
#include "comm/watchdog.hpp"

namespace preload::warmup {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);
constexpr auto kLetGo = std::chrono::seconds(20);
constexpr auto kGiveUp = std::chrono::seconds(10);
constexpr ncclDataType_t kType = ncclBfloat16;
constexpr std::size_t kTypeBytes = 2;

// A blocking start cannot be ended from outside: it is left to a thread, which is left behind.
struct Start {
  ncclComm_t comm = nullptr;
  std::promise<void> begun;  // nothing of the caller's is needed any more
  std::promise<ncclResult_t> result;
};

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclLibrary& library, const ncclUniqueId& id, int rank,
                                   int ranks, const std::function<void()>& use_device,
                                   const Wait& wait)
    : library_(library), cancel_(wait.cancel), rank_(rank), ranks_(ranks) {
  const auto start = std::make_shared<Start>();
  std::future<ncclResult_t> ended = start->result.get_future();
  std::thread([start, begin = library.comm_init_rank_config, id, rank, ranks, use_device] {
    try {
      use_device();
      start->begun.set_value();
    } catch (...) {
      start->begun.set_exception(std::current_exception());
      return;
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    start->result.set_value(begin(&start->comm, ranks, id, rank, &config));
  }).detach();
  start->begun.get_future().get();
  const auto deadline = std::chrono::steady_clock::now() + wait.timeout;
  const auto look = [&] {
    wait.cancel.check();
    if (std::chrono::steady_clock::now() < deadline) return;
    throw Error(
        Errc::kLauncher,
        fmt::format("{} on {} took more than {} s: the ranks do not reach each other; "
                    "NCCL_SOCKET_IFNAME names the interface (here: {}), NCCL_DEBUG=INFO shows what "
                    "NCCL tries, --disable-autotune does without",
                    wait.what, host_name(), wait.timeout.count(), host_interfaces()));
  };
  while (ended.wait_for(kPoll) != std::future_status::ready) look();
  const ncclResult_t result = ended.get();
  const std::string what(wait.what);
  library_.check(result, what.c_str(), nullptr);
  comm_ = start->comm;
  blocking_ = result != ncclInProgress;
  try {
    settle(what.c_str(), look);
  } catch (...) {
    give_up();
    throw;
  }
}

NcclCommunicator::NcclCommunicator(NcclCommunicator&& other) noexcept
    : library_(other.library_),
      cancel_(other.cancel_),
      rank_(other.rank_),
      ranks_(other.ranks_),
      comm_(std::exchange(other.comm_, nullptr)),
      blocking_(other.blocking_) {}

NcclCommunicator::~NcclCommunicator() { give_up(); }

void NcclCommunicator::give_up() noexcept {
  if (comm_ == nullptr) return;
  const Watchdog watchdog(kGiveUp, exit_status(Errc::kLauncher),
                          fmt::format("NCCL did not give up a communicator on {} within {} s",
                                      host_name(), kGiveUp.count()));
  library_.comm_abort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::settle(const char* what, const std::function<void()>& look) const {
  if (!blocking_) library_.settle(comm_, what, look);
}

void NcclCommunicator::enqueue(Operation operation, std::uint64_t bytes, const std::byte* source,
                               std::byte* target, void* stream) const {
  queue(operation, bytes, source, target, stream);
  settle("queueing a collective", [this] { cancel_.check(); });
}

void NcclCommunicator::queue(Operation operation, std::uint64_t bytes, const std::byte* source,
                             std::byte* target, void* stream) const {
  const auto on = static_cast<cudaStream_t>(stream);
  const std::size_t count = bytes / kTypeBytes;
  const std::size_t part = count / static_cast<std::size_t>(ranks_);
  const auto check = [&](ncclResult_t result) {
    library_.check(result, "queueing a collective", comm_);
  };
  switch (operation) {
    case Operation::kAllReduce:
      return check(library_.all_reduce(source, target, count, kType, ncclSum, comm_, on));
    case Operation::kAllGather:
      return check(library_.all_gather(source, target, part, kType, comm_, on));
    case Operation::kReduceScatter:
      return check(library_.reduce_scatter(source, target, part, kType, ncclSum, comm_, on));
    case Operation::kBroadcast:
      return check(library_.broadcast(source, target, count, kType, 0, comm_, on));
    case Operation::kReduce:
      return check(library_.reduce(source, target, count, kType, ncclSum, 0, comm_, on));
    case Operation::kAllToAll:
      return exchange_with_all(bytes / static_cast<std::size_t>(ranks_), source, target, on);
    case Operation::kSendReceive:
      return pass_on(bytes, source, target, on);
  }
}

// Experts' tokens: a part for every rank, this one included.
void NcclCommunicator::exchange_with_all(std::size_t bytes, const std::byte* source,
                                         std::byte* target, cudaStream_t stream) const {
  constexpr const char* kWhat = "queueing an all-to-all";
  NcclGroup group(library_, kWhat);
  for (int peer = 0; peer < ranks_; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * bytes;
    library_.check(library_.send(source + at, bytes, ncclUint8, peer, comm_, stream), kWhat, comm_);
    library_.check(library_.recv(target + at, bytes, ncclUint8, peer, comm_, stream), kWhat, comm_);
  }
  group.end();
}

// From each stage to the next.
void NcclCommunicator::pass_on(std::size_t bytes, const std::byte* source, std::byte* target,
                               cudaStream_t stream) const {
  constexpr const char* kWhat = "queueing a message to the next stage";
  NcclGroup group(library_, kWhat);
  if (rank_ + 1 < ranks_) {
    library_.check(library_.send(source, bytes, ncclUint8, rank_ + 1, comm_, stream), kWhat, comm_);
  }
  if (rank_ > 0) {
    library_.check(library_.recv(target, bytes, ncclUint8, rank_ - 1, comm_, stream), kWhat, comm_);
  }
  group.end();
}

void NcclCommunicator::check() const { library_.state(comm_, "running a collective"); }

void NcclCommunicator::destroy() {
  const Watchdog watchdog(kLetGo, exit_status(Errc::kLauncher),
                          fmt::format("NCCL did not end its communicators on {} within {} s",
                                      host_name(), kLetGo.count()));
  library_.check(library_.comm_finalize(comm_), "ending NCCL", comm_);
  settle("ending NCCL", [this] { cancel_.check(); });
  library_.check(library_.comm_destroy(std::exchange(comm_, nullptr)), "ending NCCL", nullptr);
}

}  // namespace preload::warmup
