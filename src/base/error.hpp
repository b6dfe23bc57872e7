// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

namespace preload {

// What went wrong, coarsely. One code gives the exit status and the code on the wire.
enum class Errc {
  kInternal,       // a bug, or a status nobody foresaw: exit 1
  kUnexpectedEnd,  // a clean end that nobody asked for: exit 1
  kTimeout,        // a wait ran into its deadline: exit 1
  kUsage,          // flags, environment, socket directory: exit 2
  kCheckpoint,     // files, index, headers, truncation: exit 3
  kModel,          // architecture, shapes or layout refused: exit 3
  kDevice,         // GPU, driver: exit 4
  kMemory,         // device or host memory cannot hold it: exit 4
  kLauncher,       // launcher or MPI: exit 5
  kBusy,           // another daemon owns the GPU and slot: exit 6
  kUnavailable,    // no daemon, or it is not serving yet: exit 7
  kMismatch,       // the daemon holds something else: exit 7
  kReleased,       // the weights were released: exit 7
  kProtocol,       // the peer broke the protocol: exit 7
};

int exit_status(Errc code) noexcept;
std::string_view wire_code(Errc code) noexcept;                      // "busy", "mismatch", ...
std::optional<Errc> errc_from_wire(std::string_view code) noexcept;  // inverse of wire_code

// The one exception type. The text names the thing (tensor, file, rank, peer) and the remedy.
class Error : public std::exception {
 public:
  Error(Errc code, std::string text, std::source_location where = std::source_location::current());

  const char* what() const noexcept override { return text_.c_str(); }
  Errc code() const noexcept { return code_; }
  const std::source_location& where() const noexcept { return where_; }

 private:
  Errc code_;
  std::string text_;
  std::source_location where_;
};

}  // namespace preload
