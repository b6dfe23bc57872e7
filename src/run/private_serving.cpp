// SPDX-License-Identifier: Apache-2.0
#include "run/private_serving.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <utility>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/job_message.hpp"

namespace preload::run {
namespace {

namespace fs = std::filesystem;

const std::string kPrefix = "warmup-";

// The same memory under other descriptors.
Residency duplicate_of(const Residency& residency) {
  Residency copy;
  copy.endpoint = residency.endpoint;
  copy.job = residency.job;
  copy.model = residency.model;
  copy.coords = residency.coords;
  copy.fields = residency.fields;
  copy.key = residency.key;
  copy.checkpoint = residency.checkpoint;
  copy.receipt_json = residency.receipt_json;
  copy.shard_json = residency.shard_json;
  copy.generation = residency.generation;
  copy.manifest = duplicate(residency.manifest.get());
  copy.tensor_count = residency.tensor_count;
  for (const SlabHandle& slab : residency.slabs) {
    SlabHandle& handle = copy.slabs.emplace_back();
    handle.kind = slab.kind;
    handle.cls = slab.cls;
    handle.bytes = slab.bytes;
    if (slab.fd) handle.fd = duplicate(slab.fd.get());
    handle.ipc_bytes = slab.ipc_bytes;
  }
  return copy;
}

// Between its making and its first lock a directory looks like a leftover.
class CreationGuard {
 public:
  CreationGuard(const SocketDir& parent, int kind)
      : fd_(open_fd(parent.fd(), ".", O_RDONLY | O_DIRECTORY, 0, Errc::kUsage)),
        held_(::flock(fd_.get(), kind) == 0) {}
  bool held() const noexcept { return held_; }

 private:
  Fd fd_;
  bool held_;
};

SocketDir make_directory(const SocketDir& parent, const std::string& name) {
  // Absolute: a hook may go elsewhere before it attaches.
  const std::string path = (fs::absolute(parent.path()) / name).string();
  if (::mkdirat(parent.fd(), name.c_str(), 0700) != 0 && errno != EEXIST) {
    check_sys(-1, fmt::format("cannot make the warm-up's directory '{}'", path), Errc::kUsage);
  }
  return SocketDir::open(path, false);
}

bool is_in_use(const SocketDir& directory) {
  return std::ranges::any_of(directory.list(), [&](const std::string& name) {
    return name.ends_with(".lock") && lock_is_held(directory, name);
  });
}

}  // namespace

PrivateServing::Served::Served(const SocketDir& directory, RoleDaemon& role, Residency residency)
    : daemon(role),
      endpoint(residency.endpoint),
      lock(take_lock(directory, endpoint)),
      server(directory, std::move(residency), ServerOptions{}) {
  note_holder(lock);
}

PrivateServing::PrivateServing(RankContext& rank, const WarmupPlan& plan)
    : launch_(rank.launch), public_directory_(*rank.directory), name_(plan.private_name) {
  const CreationGuard guard(public_directory_, LOCK_SH);
  directory_.emplace(make_directory(public_directory_, name_));
  try {
    for (RoleDaemon& daemon : rank.daemons) {
      if (daemon.is_here()) open(daemon, plan);
    }
  } catch (...) {
    close();
    throw;
  }
}

void PrivateServing::open(RoleDaemon& daemon, const WarmupPlan& plan) {
  Residency residency = duplicate_of(*daemon.residency);
  if (!plan.private_device.empty()) residency.endpoint.device = plan.private_device;
  residency.local_size = static_cast<int>(std::ranges::count_if(plan.served, [&](int rank) {
    return coords_in_role(daemon.role.role, launch_, rank).has_value();
  }));
  StateFile state;
  state.state = "READY";
  state.job = residency.job;
  state.global_rank = residency.coords.global;
  state.local_size = residency.local_size;
  state.model = residency.model;
  Served& served = served_.emplace_back(*directory_, daemon, std::move(residency));
  served.server.admit();
  served.thread = std::thread([&server = served.server] {
    try {
      server.run();
    } catch (const std::exception& error) {
      log::warn(fmt::format("the warm-up's socket has failed: {}", error.what()));
    }
  });
  write_state(*directory_, served.endpoint, state);
}

void PrivateServing::stop_servers() {
  for (Served& served : served_) {
    served.server.end({ServeEnd::Cause::kStopRequested, 0, "the warm-up is over"});
  }
  for (Served& served : served_) {
    if (served.thread.joinable()) served.thread.join();
  }
}

void PrivateServing::end(std::chrono::steady_clock::time_point deadline) {
  stop_servers();
  for (Served& served : served_) {
    std::vector<Lease> open = served.server.settle_leases(deadline);
    if (open.empty()) continue;
    log::warn(
        fmt::format("the warm-up has left {} open on {}, by pid {}: the memory stays its own "
                    "as long as it lives",
                    counted(open.size(), "lease"), served.endpoint.device, open.front().pid));
    for (Lease& lease : open) served.daemon.inheritance.leases.push_back(std::move(lease));
  }
}

PrivateServing::~PrivateServing() { close(); }

void PrivateServing::close() {
  stop_servers();
  for (Served& served : served_) {
    ::unlinkat(directory_->fd(), served.endpoint.state_name().c_str(), 0);
    ::unlinkat(directory_->fd(), served.endpoint.lock_name().c_str(), 0);
  }
  served_.clear();  // the servers unlink their sockets
  // The last of the ranks that share it succeeds.
  ::unlinkat(public_directory_.fd(), name_.c_str(), AT_REMOVEDIR);
}

std::string private_name() { return kPrefix + random_hex(8); }

void remove_stale_private(const SocketDir& directory) {
  const CreationGuard guard(directory, LOCK_EX | LOCK_NB);
  if (!guard.held()) return;  // at the next start
  for (const std::string& name : directory.list()) {
    if (!name.starts_with(kPrefix)) continue;
    try {
      const SocketDir stale = SocketDir::open(directory.path() + "/" + name, false);
      if (is_in_use(stale)) continue;
      for (const std::string& entry : stale.list()) ::unlinkat(stale.fd(), entry.c_str(), 0);
      ::unlinkat(directory.fd(), name.c_str(), AT_REMOVEDIR);
    } catch (const Error&) {  // somebody else's, or gone by now
    }
  }
}

}  // namespace preload::run
