// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "serve/socket_dir.hpp"

namespace preload {
namespace {

constexpr std::size_t kMaxSlotLength = 32;
constexpr std::string_view kReservedSlot = "next";  // <h>.next.lock is the successor's lock

void check_slot(const std::string& slot) {
  const bool fits =
      slot.size() <= kMaxSlotLength && std::all_of(slot.begin(), slot.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      });
  if (!fits)
    throw Error(Errc::kUsage,
                fmt::format("slot '{}' must be 1 to {} characters of a-z, 0-9 and '-'", slot,
                            kMaxSlotLength));
  if (slot == kReservedSlot)
    throw Error(Errc::kUsage, fmt::format("slot '{}' is reserved: choose another name", slot));
}

}  // namespace

std::string Endpoint::stem() const {
  check_slot(slot);
  std::string stem = sha256_hex(device).substr(0, 16);
  if (!slot.empty()) stem += "." + slot;
  if (role == Role::kDraft) stem += "_draft";
  return stem;
}

}  // namespace preload
