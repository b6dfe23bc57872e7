// SPDX-License-Identifier: Apache-2.0
#include "run/host_network.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

namespace preload::run {
namespace {

namespace fs = std::filesystem;

constexpr double kBitsPerGb = 1e9;
constexpr double kBitsPerMb = 1e6;

// The first line of a file; empty when it cannot be read: links that are down have no speed.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed)) {
    entries.push_back(at->path());
  }
  return entries;
}

// "400 Gb/sec (4X NDR)" of every port whose state is "4: ACTIVE".
double infiniband_bits_per_s(const fs::path& sys) {
  double sum = 0;
  for (const fs::path& adapter : entries_of(sys / "class/infiniband")) {
    for (const fs::path& port : entries_of(adapter / "ports")) {
      if (!line_of(port / "state").starts_with("4:")) continue;
      sum += std::strtod(line_of(port / "rate").c_str(), nullptr) * kBitsPerGb;
    }
  }
  return sum;
}

// Mb/s; only what has a device behind it, so no bridges, no virtual pairs.
double ethernet_bits_per_s(const fs::path& sys) {
  double most = 0;
  for (const fs::path& link : entries_of(sys / "class/net")) {
    std::error_code failed;
    if (!fs::exists(link / "device", failed) || line_of(link / "operstate") != "up") continue;
    most = std::max(most, std::strtod(line_of(link / "speed").c_str(), nullptr) * kBitsPerMb);
  }
  return most;
}

}  // namespace

double network_bytes_per_s(const std::string& sys) {
  const double infiniband = infiniband_bits_per_s(sys);
  return (infiniband > 0 ? infiniband : ethernet_bits_per_s(sys)) / 8;
}

}  // namespace preload::run
