// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace preload::bench {

// Medians of one bench's loads. Rates count 10^9 bytes.
struct LoadFigures {
  std::string model;
  std::string device;  // "cuda" or "host"
  std::string gpu;     // its name, "" on the host
  std::uint64_t bytes = 0;
  double seconds = 0;           // first read to last byte hashed
  double setup_seconds = 0;     // host buffers, pinning, fills: before the first read
  double allocate_seconds = 0;  // the slabs, before the set-up
  double limit_gb_per_s = 0;
  std::string limit;  // what was measured as the limit
  std::string reader;
  int threads = 0;
  int runs = 0;
  bool hot = true;
  std::size_t tensors = 0;  // whose hashes every run gave right

  double gb_per_s() const noexcept { return static_cast<double>(bytes) / 1e9 / seconds; }
  double ratio() const noexcept { return gb_per_s() / limit_gb_per_s; }
};

// Another loader on the same files; one entry a way to call it. Without `gb_per_s` there is the
// reason in `error` or `skipped`.
struct PeerFigures {
  std::string name;
  std::string version;
  std::string setting;
  std::optional<double> seconds;
  std::optional<double> gb_per_s;
  std::string error;
  std::string skipped;
  friend bool operator==(const PeerFigures&, const PeerFigures&) = default;
};
// What the helper program prints. Throws Error(kInternal) when it is something else.
std::vector<PeerFigures> parse_peers(std::string_view json);

std::string report_json(const LoadFigures& load, const std::vector<PeerFigures>& peers);  // a line
std::string report_text(const LoadFigures& load, const std::vector<PeerFigures>& peers);

}  // namespace preload::bench
