// SPDX-License-Identifier: Apache-2.0
#include <errno.h>  // program_invocation_short_name
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "client/abi_structs.hpp"
#include "serve/peer.hpp"

namespace preload::client {
namespace {

Role role_from_text(const char* text) {
  for (const Role role : {Role::kTarget, Role::kDraft}) {
    if (text == role_name(role)) return role;
  }
  throw Error(Errc::kUsage, fmt::format("role \"{}\" is neither target nor draft", text));
}

std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }

}  // namespace

AttachOptions attach_options(const preload_attach_options* given) {
  preload_attach_options c{};
  if (given != nullptr) c = read_struct(given);
  require(c.connect_timeout_ms >= 0 && c.wait_timeout_ms >= 0, "a timeout is negative");
  require(c.socket_path == nullptr || c.socket_dir == nullptr,
          "socket_dir and socket_path are both set: give one");
  AttachOptions options;
  ConnectOptions& connect = options.connect;
  connect.wanted.socket_dir = text_or_empty(c.socket_dir);
  if (c.allow_uids != nullptr && *c.allow_uids != '\0')
    connect.wanted.socket_dir.allow_uids = uids_from_text(c.allow_uids, "allow_uids");
  if (c.device != nullptr) connect.wanted.device = c.device;
  connect.wanted.socket_path = text_or_empty(c.socket_path);
  if (c.slot != nullptr) connect.wanted.slot = c.slot;
  if (c.role != nullptr) connect.wanted.role = role_from_text(c.role);
  connect.identity = {::getpid(),
                      c.client_name != nullptr ? c.client_name : program_invocation_short_name,
                      PRELOAD_VERSION};
  if (c.connect_timeout_ms > 0) connect.connect_timeout_ms = c.connect_timeout_ms;
  connect.wait_timeout_ms = c.wait_timeout_ms;
  if (c.absent_timeout_ms != 0) connect.absent_timeout_ms = std::max(c.absent_timeout_ms, 0);
  if (c.expect_json != nullptr) {
    options.expect = expectation_from_json(c.expect_json);
  }
  if (c.mode != PRELOAD_MODE_MAP && c.mode != PRELOAD_MODE_COPY) {
    throw Error(Errc::kUsage, fmt::format("mode {} is neither map nor copy", c.mode));
  }
  if (c.base_address % kBaseAlignment != 0) {
    throw Error(Errc::kUsage, fmt::format("base address {:#x} is no multiple of 2 MiB: give what "
                                          "an earlier attachment's info told",
                                          c.base_address));
  }
  options.placement = {c.mode == PRELOAD_MODE_COPY, c.base_address};
  return options;
}

}  // namespace preload::client
