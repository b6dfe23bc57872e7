// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/error.hpp"
#include "serve/socket_dir.hpp"
#include "wire/progress_json.hpp"

namespace preload {

using nlohmann::json;

namespace {

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

StateFile parse(std::string_view text) {
  const json value = wire::parse_json(text, "state file", Errc::kProtocol);
  const wire::JsonObject object(value, "state file");
  StateFile state;
  state.state = object.text("state");
  state.device = object.text("device");
  state.slot = object.text("slot");
  state.role = object.text("role");
  state.job = object.text("job");
  state.boot_id = object.text("boot_id");
  state.pid = object.small_number("pid");
  state.global_rank = object.small_number("global_rank");
  state.local_size = object.small_number("local_size");
  state.model = object.text("model");
  state.progress = wire::progress_member(object, "progress", "state file: progress");
  state.time_ms = static_cast<std::int64_t>(object.unsigned_number("time_ms"));
  state.code = object.text_or("code", "");
  state.text = object.text_or("text", "");
  state.exit_status = object.small_number_or("exit_status", 0);
  return state;
}

}  // namespace

std::string current_boot_id() {
  std::string text = read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id").value_or("unknown");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void write_state(const SocketDir& directory, const Endpoint& endpoint, const StateFile& state) {
  write_state(directory, endpoint, endpoint.state_name(), state);
}

void write_state(const SocketDir& directory, const Endpoint& endpoint, const std::string& name,
                 const StateFile& state) {
  const json value{
      {"state", state.state},
      {"device", state.device.empty() ? endpoint.device : state.device},
      {"slot", state.slot.empty() ? endpoint.slot : state.slot},
      {"role", state.role.empty() ? std::string(role_name(endpoint.role)) : state.role},
      {"job", state.job},
      {"boot_id", state.boot_id.empty() ? current_boot_id() : state.boot_id},
      {"pid", state.pid == 0 ? ::getpid() : state.pid},
      {"global_rank", state.global_rank},
      {"local_size", state.local_size},
      {"model", state.model},
      {"progress", wire::progress_json(state.progress)},
      {"time_ms", state.time_ms == 0 ? now_ms() : state.time_ms},
      {"code", state.code},
      {"text", state.text},
      {"exit_status", state.exit_status}};
  if (directory.allow_uids().empty()) {
    write_file_at(directory.fd(), name, wire::dump_json(value));
    return;
  }
  // Whoever may read the state can at every moment.
  const std::string fresh = "." + name + ".shared";
  write_file_at(directory.fd(), fresh, wire::dump_json(value));
  directory.share(fresh, Access::kRead);
  check_sys(::renameat(directory.fd(), fresh.c_str(), directory.fd(), name.c_str()),
            fmt::format("cannot rename '{}/{}'", directory.path(), fresh));
}

std::optional<StateFile> read_state(const SocketDir& directory, const std::string& state_name) {
  try {
    const auto text = read_file_at(directory.fd(), state_name);
    if (!text) return std::nullopt;
    return parse(*text);
  } catch (const Error&) {
    return std::nullopt;  // what nobody of ours wrote says nothing
  }
}

void remove_state(const SocketDir& directory, const Endpoint& endpoint) {
  remove_state(directory, endpoint.state_name());
}

void remove_state(const SocketDir& directory, const std::string& state_name) {
  if (::unlinkat(directory.fd(), state_name.c_str(), 0) != 0 && errno != ENOENT)
    check_sys(-1, "cannot remove '" + directory.path() + "/" + state_name + "'");
}

}  // namespace preload
