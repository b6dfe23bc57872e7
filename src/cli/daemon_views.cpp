// SPDX-License-Identifier: Apache-2.0
#include "cli/daemon_views.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "client/locate.hpp"

namespace preload::cli {

DaemonFilter filter_of(const ClientOptions& options) {
  DaemonFilter filter{std::nullopt, options.slot, options.role};
  if (options.gpu) filter.device = client::device_from_text(*options.gpu);
  return filter;
}

std::vector<DaemonView> look_with_successors(const ClientOptions& options) {
  std::vector<DaemonView> views = look(options);
  try {
    const DaemonFilter filter = filter_of(options);
    for (DaemonView& view : view_successors(SocketDir::open(options.socket_dir, false)))
      if (filter.admits(view)) views.push_back(std::move(view));
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
  }
  return views;
}

std::vector<DaemonView> look(const ClientOptions& options) {
  const DaemonFilter filter = filter_of(options);
  try {
    return view_directory(SocketDir::open(options.socket_dir, false), filter);
  } catch (const Error& error) {
    if (error.code() == Errc::kUnavailable) return {};
    throw;
  }
}

std::optional<wire::KeeperStatus> look_at_keeper(const ClientOptions& options) {
  try {
    return view_keeper(SocketDir::open(options.socket_dir, false));
  } catch (const Error& error) {
    if (error.code() == Errc::kUnavailable) return std::nullopt;
    throw;
  }
}

std::vector<DaemonView> look_for_running(const ClientOptions& options) {
  std::vector<DaemonView> views = look_with_successors(options);
  std::erase_if(views, [](const DaemonView& view) {
    return view.condition != DaemonCondition::kAnswering &&
           view.condition != DaemonCondition::kComing && !view.kept;
  });
  return views;
}

void refuse_none(const ClientOptions& options, std::string_view what) {
  // Opening again gives the reason where the directory itself is the reason.
  const SocketDir directory = SocketDir::open(options.socket_dir, false);
  throw Error(Errc::kUnavailable,
              fmt::format("{} in '{}'{}{}: `preload status` lists what is there, "
                          "--weight-cache-socket-dir names another directory",
                          what, directory.path(), options.gpu ? " for " + *options.gpu : "",
                          options.slot ? " in slot " + *options.slot : ""));
}

}  // namespace preload::cli
