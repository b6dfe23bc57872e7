// SPDX-License-Identifier: Apache-2.0
#include "client/locate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "base/error.hpp"
#include "client/cuda_device.hpp"

namespace preload::client {
namespace {

constexpr std::string_view kStateSuffix = ".state";

std::optional<int> parse_index(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) {
      return false;
    }
  }
  return true;
}

std::string device_of_index(int index) {
  const cu::Driver driver;
  const std::vector<std::string> names = cu::visible_devices(driver);
  if (static_cast<std::size_t>(index) >= names.size()) {
    throw Error(Errc::kDevice, fmt::format("there is no CUDA device {}: this process sees {}; "
                                           "check CUDA_VISIBLE_DEVICES",
                                           index, names.size()));
  }
  return names[static_cast<std::size_t>(index)];
}

struct Found {
  Endpoint endpoint;
  bool live = false;  // its lock is held
};

std::vector<Found> daemons_in(const SocketDir& directory) {
  std::vector<Found> found;
  for (const std::string& name : directory.list()) {
    if (!name.ends_with(kStateSuffix)) continue;
    const std::optional<StateFile> state = read_state(directory, name);
    if (!state || state->device.empty()) continue;
    const Endpoint endpoint{state->device, state->slot,
                            state->role == role_name(Role::kDraft) ? Role::kDraft : Role::kTarget};
    if (endpoint.state_name() != name) continue;  // a copy under another name says nothing
    found.push_back({endpoint, lock_is_held(directory, endpoint.lock_name())});
  }
  return found;
}

std::string list_text(const std::vector<Endpoint>& endpoints) {
  std::string text;
  for (const Endpoint& endpoint : endpoints) {
    text += fmt::format("{}({})", text.empty() ? "" : ", ", describe(endpoint));
  }
  return text;
}

}  // namespace

std::string device_from_text(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string_view view = lower;
  if (view.starts_with("host:")) {
    const std::optional<int> rank = parse_index(view.substr(5));
    if (rank) return fmt::format("host:{}", *rank);
  } else if ((view.starts_with("gpu-") || view.starts_with("mig-")) && is_uuid(view.substr(4))) {
    return lower;
  } else if (const std::optional<int> index = parse_index(view)) {
    return device_of_index(*index);
  }
  throw Error(Errc::kUsage,
              fmt::format("\"{}\" names no device: give a GPU's UUID (GPU-8-4-4-4-12 hex digits), "
                          "its CUDA index, or host:N for rank N of a node on host memory",
                          text));
}

Endpoint only_endpoint(const SocketDir& directory, const std::string& slot, Role role) {
  std::vector<Endpoint> live;
  std::vector<Endpoint> dead;
  std::vector<Endpoint> others;
  for (const Found& found : daemons_in(directory)) {
    const bool fits = found.endpoint.slot == slot && found.endpoint.role == role;
    if (fits) {
      (found.live ? live : dead).push_back(found.endpoint);
    } else if (found.live) {
      others.push_back(found.endpoint);
    }
  }
  const std::vector<Endpoint>& fitting = live.empty() ? dead : live;
  if (fitting.size() == 1) return fitting.front();
  if (live.size() > 1) {
    throw Error(Errc::kUsage, fmt::format("{} daemons are in {}: {}; say which by its device",
                                          live.size(), directory.path(), list_text(live)));
  }
  throw Error(
      Errc::kUnavailable,
      fmt::format("no daemon{} with role {} in {}; {}",
                  slot.empty() ? "" : fmt::format(" with slot {}", slot), role_name(role),
                  directory.path(),
                  others.empty() ? "nothing else is there" : "there are: " + list_text(others)));
}

std::string describe(const Endpoint& endpoint) {
  std::string text = endpoint.device;
  if (!endpoint.slot.empty()) text += ", slot " + endpoint.slot;
  if (endpoint.role == Role::kDraft) text += ", role draft";
  return text;
}

}  // namespace preload::client
