// SPDX-License-Identifier: Apache-2.0
#include "cli/local_daemons.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "client/locate.hpp"
#include "serve/directory_view.hpp"

namespace preload::cli {
namespace {

// Between a daemon's lock and its `.state` there are milliseconds, or a disk that hangs.
constexpr auto kNamedBy = std::chrono::seconds(3);
constexpr auto kPoll = std::chrono::milliseconds(20);

bool is_nameless(const DaemonView& view) { return view.status().gpu_uuid.empty(); }

// Until every daemon that is coming has said which device it serves.
std::vector<DaemonView> named_views(const SocketDir& directory, const DaemonFilter& filter) {
  const auto deadline = std::chrono::steady_clock::now() + kNamedBy;
  while (true) {
    std::vector<DaemonView> views = view_directory(directory, filter);
    if (std::ranges::none_of(views, is_nameless) || std::chrono::steady_clock::now() >= deadline)
      return views;
    std::this_thread::sleep_for(kPoll);
  }
}

Endpoint endpoint_of(const DaemonView& view, const SocketDir& directory) {
  const wire::DaemonStatus status = view.status();
  if (is_nameless(view)) {
    throw Error(
        Errc::kUnavailable,
        fmt::format("the daemon {} in {} has begun and not said yet which device it serves: "
                    "try again, or `preload wait` for it",
                    view.stem, directory.path()));
  }
  return {status.gpu_uuid, status.slot,
          status.role == role_name(Role::kDraft) ? Role::kDraft : Role::kTarget};
}

// Why there is nothing to attach to, as far as the directory tells.
[[noreturn]] void refuse(const SocketDir& directory, const std::vector<DaemonView>& views) {
  for (const DaemonView& view : views) {
    if (view.condition != DaemonCondition::kFailed) continue;
    const wire::DaemonStatus status = view.status();
    throw Error(Errc::kUnavailable, fmt::format("the daemon {} in {} failed ({}): {}", view.name(),
                                                directory.path(), status.code, status.text));
  }
  for (const DaemonView& view : views) {
    throw Error(Errc::kUnavailable, fmt::format("the daemon {} in {} is gone: its lock is free; "
                                                "start it again",
                                                view.name(), directory.path()));
  }
  throw Error(Errc::kUnavailable, fmt::format("no such daemon in {}: `preload status` lists what "
                                              "is there",
                                              directory.path()));
}

}  // namespace

std::vector<Endpoint> local_daemons(const ClientOptions& options) {
  const SocketDir directory = SocketDir::open(options.socket_dir, false);
  DaemonFilter filter{std::nullopt, options.slot, options.role};
  if (options.gpu) filter.device = client::device_from_text(*options.gpu);
  const std::vector<DaemonView> views = named_views(directory, filter);
  std::vector<Endpoint> endpoints;
  for (const DaemonView& view : views) {
    if (view.condition == DaemonCondition::kAnswering ||
        view.condition == DaemonCondition::kComing || view.kept) {
      endpoints.push_back(endpoint_of(view, directory));
    }
  }
  if (endpoints.empty()) refuse(directory, views);
  return endpoints;
}

LocalShard attach_to(const ClientOptions& options, const Endpoint& endpoint,
                     const client::Expectation& expect) {
  client::AttachOptions attach;
  attach.connect.wanted = {options.socket_dir, "", endpoint.device, endpoint.slot, endpoint.role};
  attach.expect = expect;
  attach.connect.identity = {::getpid(), "preload", PRELOAD_VERSION};
  LocalShard shard;
  shard.endpoint = endpoint;
  const auto start = std::chrono::steady_clock::now();
  shard.attachment = std::make_unique<client::Attachment>(attach);
  shard.attach_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  shard.description = shard_from_json(shard.attachment->manifest().metadata_json());
  return shard;
}

}  // namespace preload::cli
