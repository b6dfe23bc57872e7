// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <array>
#include <utility>

namespace preload {
namespace {

struct CodeRow {
  Errc code;
  int status;
  std::string_view wire;
};

constexpr std::array kCodes{
    CodeRow{Errc::kInternal, 1, "internal"},       CodeRow{Errc::kUnexpectedEnd, 1, "ended"},
    CodeRow{Errc::kTimeout, 1, "timeout"},         CodeRow{Errc::kUsage, 2, "usage"},
    CodeRow{Errc::kCheckpoint, 3, "checkpoint"},   CodeRow{Errc::kModel, 3, "model"},
    CodeRow{Errc::kDevice, 4, "device"},           CodeRow{Errc::kMemory, 4, "memory"},
    CodeRow{Errc::kLauncher, 5, "launcher"},       CodeRow{Errc::kBusy, 6, "busy"},
    CodeRow{Errc::kUnavailable, 7, "unavailable"}, CodeRow{Errc::kMismatch, 7, "mismatch"},
    CodeRow{Errc::kReleased, 7, "released"},       CodeRow{Errc::kProtocol, 7, "protocol"},
};

const CodeRow& row_of(Errc code) noexcept {
  for (const CodeRow& row : kCodes) {
    if (row.code == code) return row;
  }
  return kCodes.front();
}

}  // namespace

int exit_status(Errc code) noexcept { return row_of(code).status; }

std::string_view wire_code(Errc code) noexcept { return row_of(code).wire; }

std::optional<Errc> errc_from_wire(std::string_view code) noexcept {
  for (const CodeRow& row : kCodes) {
    if (row.wire == code) return row.code;
  }
  return std::nullopt;
}

Error::Error(Errc code, std::string text, std::source_location where)
    : code_(code), text_(std::move(text)), where_(where) {}

}  // namespace preload
