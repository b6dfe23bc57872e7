// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "comm/job_channel.hpp"

namespace preload {

using Json = nlohmann::json;

std::string encode(const HubAddress& address) {
  return Json{{"hosts", address.hosts},
              {"boot_id", address.boot_id},
              {"port", address.port},
              {"secret", address.secret_hex}}
      .dump();
}

// The text holds the secret: no part of it goes into a message.
HubAddress decode_hub_address(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    HubAddress address;
    address.hosts = json.at("hosts").get<std::vector<std::string>>();
    address.boot_id = json.at("boot_id").get<std::string>();
    address.port = json.at("port").get<int>();
    address.secret_hex = json.at("secret").get<std::string>();
    return address;
  } catch (const Json::exception& error) {
    throw Error(Errc::kInternal,
                fmt::format("rank 0 sent no address of a job channel (JSON error {})", error.id));
  }
}

}  // namespace preload
