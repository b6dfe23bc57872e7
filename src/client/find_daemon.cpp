// SPDX-License-Identifier: Apache-2.0
#include "client/find_daemon.hpp"

#include <algorithm>
#include <utility>

#include "client/cuda_device.hpp"
#include "serve/directory_view.hpp"
#include "wire/exchange.hpp"

namespace preload::client {
namespace {

constexpr std::string_view kHostPrefix = "host:";

preload_daemon_state state_of(wire::DaemonState state) noexcept {
  switch (state) {
    case wire::DaemonState::kLoading:
      return PRELOAD_DAEMON_LOADING;
    case wire::DaemonState::kReady:
      return PRELOAD_DAEMON_READY;
    case wire::DaemonState::kDraining:
      return PRELOAD_DAEMON_DRAINING;
    case wire::DaemonState::kReleased:
      return PRELOAD_DAEMON_RELEASED;
    case wire::DaemonState::kFailed:
      return PRELOAD_DAEMON_FAILED;
    case wire::DaemonState::kOrphaned:
      return PRELOAD_DAEMON_ORPHANED;
  }
  return PRELOAD_DAEMON_ABSENT;
}

bool is_on_host(const std::string& device) { return device.starts_with(kHostPrefix); }

// -1 where there is no driver or the GPU is not among the visible ones.
int ordinal_of(const std::string& device) {
  if (device.empty() || is_on_host(device)) return -1;
  try {
    const cu::Driver driver;
    return cu::find_device(driver, device);
  } catch (const Error&) {
    return -1;
  }
}

class Finding {
 public:
  explicit Finding(int timeout_ms) : timeout_ms_(timeout_ms) {}

  FoundDaemon operator()(const Connection& connection) const {
    FoundDaemon found;
    found.status = wire::call_status(connection.socket.get(), timeout_ms_);
    found.state = state_of(found.status.state);
    found.text = found.status.text;
    return found;
  }
  FoundDaemon operator()(const Loading& loading) const {
    FoundDaemon found;
    found.state = PRELOAD_DAEMON_LOADING;
    found.text = loading.text;
    if (loading.state) found.status = status_of(*loading.state);
    return found;
  }
  FoundDaemon operator()(const Tombstone& tombstone) const {
    return {PRELOAD_DAEMON_FAILED, status_of(tombstone.state), tombstone.text};
  }
  FoundDaemon operator()(const Absent& absent) const {
    FoundDaemon found;
    found.text = absent.text;
    return found;
  }

 private:
  int timeout_ms_;
};

}  // namespace

preload_daemon FoundDaemon::describe() const noexcept {
  preload_daemon out{};
  out.state = state;
  out.memory = is_on_host(status.gpu_uuid) ? PRELOAD_MEMORY_HOST : PRELOAD_MEMORY_CUDA;
  out.cuda_device = cuda_ordinal;
  out.pid = status.pid;
  out.bytes = status.bytes;
  out.generation = status.generation;
  out.device = status.gpu_uuid.c_str();
  out.slot = status.slot.c_str();
  out.role = status.role.c_str();
  out.job = status.job.c_str();
  out.model = status.model.c_str();
  out.key = status.key.c_str();
  out.text = text.c_str();
  return out;
}

FoundDaemon find_daemon(const ConnectOptions& options) {
  const Finding finding(options.connect_timeout_ms);
  FoundDaemon found;
  try {
    found = std::visit(finding, look_for_daemon(options));
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    // It went, or fell silent, after its greeting. Who greets and then says nothing is not absent.
    const Look again = look_for_daemon(options);
    found = std::holds_alternative<Connection>(again) ? finding(Loading{error.what(), {}})
                                                      : std::visit(finding, again);
  }
  found.cuda_ordinal = ordinal_of(found.status.gpu_uuid);
  return found;
}

}  // namespace preload::client
