// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/daemon_views.hpp"
#include "serve/connect.hpp"
#include "wire/exchange.hpp"

namespace preload::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kAnswerTimeoutMs = 5000;

struct Released {
  DaemonView view;
  wire::ReleaseReply reply;
};

void print_text(const Released& released) {
  if (released.reply.leases == 0) {
    fmt::print("{} {}\n", released.view.name(), wire::state_name(released.reply.state));
  } else {
    fmt::print("{} {}: frees its weights when {} lease{} ended\n", released.view.name(),
               wire::state_name(released.reply.state), released.reply.leases,
               released.reply.leases == 1 ? " has" : "s have");
  }
}

ordered_json json_of(const Released& released) {
  const wire::DaemonStatus& status = *released.view.live;
  return {{"gpu_uuid", status.gpu_uuid},
          {"slot", status.slot},
          {"role", status.role},
          {"global_rank", status.global_rank},
          {"state", wire::state_name(released.reply.state)},
          {"leases", released.reply.leases}};
}

}  // namespace

int run_release(const Arguments& arguments) {
  const ParsedOptions parsed("release", arguments);
  const ClientOptions options = client_options(parsed);
  std::vector<DaemonView> views = look(options);
  std::erase_if(views, [](const DaemonView& view) { return !view.live; });
  if (views.empty()) {
    if (options.json) fmt::print("{}\n", ordered_json{{"daemons", ordered_json::array()}}.dump(2));
    refuse_none(options, "no daemon serves weights");
  }
  const SocketDir directory = SocketDir::open(options.socket_dir, false);
  const wire::ReleaseRequest request{!parsed.has("force")};
  ordered_json daemons = ordered_json::array();
  std::optional<int> failure;
  for (const DaemonView& view : views) {
    try {
      const Fd socket = connect_to(directory, view.stem + ".sock", kAnswerTimeoutMs);
      const Released released{view, wire::call_release(socket.get(), request, kAnswerTimeoutMs)};
      if (options.json) {
        daemons.push_back(json_of(released));
      } else {
        print_text(released);
      }
    } catch (const Error& error) {
      log::error(fmt::format("{}: {}", view.name(), error.what()));
      if (!failure) failure = exit_status(error.code());
    }
  }
  if (options.json) fmt::print("{}\n", ordered_json{{"daemons", daemons}}.dump(2));
  return failure.value_or(0);
}

}  // namespace preload::cli
