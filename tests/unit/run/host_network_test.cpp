// SPDX-License-Identifier: Apache-2.0
#include "run/host_network.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/temp_dir.hpp"

namespace preload::run {
namespace {

namespace fs = std::filesystem;

class HostNetwork : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& line) const {
    const fs::path path = fs::path(sys_.path()) / "class" / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << line << '\n';
  }
  void port(const std::string& name, const std::string& state, const std::string& rate) const {
    write("infiniband/" + name + "/ports/1/state", state);
    write("infiniband/" + name + "/ports/1/rate", rate);
  }
  void link(const std::string& name, const std::string& state, const std::string& speed) const {
    write("net/" + name + "/operstate", state);
    write("net/" + name + "/speed", speed);
    fs::create_directories(fs::path(sys_.path()) / "class/net" / name / "device");
  }
  double rate() const { return network_bytes_per_s(sys_.path()); }

  const test::TempDir sys_;
};

TEST_F(HostNetwork, IsUnknownWhereNothingSaysIt) {
  EXPECT_EQ(rate(), 0);
  link("eth0", "up", "-1");
  EXPECT_LE(rate(), 0);
}

TEST_F(HostNetwork, AddsUpActiveInfiniBandPorts) {
  port("mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)");
  port("mlx5_1", "4: ACTIVE", "400 Gb/sec (4X NDR)");
  port("mlx5_2", "1: DOWN", "400 Gb/sec (4X NDR)");
  link("eth0", "up", "25000");
  EXPECT_DOUBLE_EQ(rate(), 100e9);
}

TEST_F(HostNetwork, TakesTheFastestLinkThatIsUp) {
  link("eth0", "up", "10000");
  link("eth1", "up", "100000");
  link("eth2", "down", "400000");
  write("net/bridge/operstate", "up");  // no device behind it
  write("net/bridge/speed", "800000");
  EXPECT_DOUBLE_EQ(rate(), 12.5e9);
}

}  // namespace
}  // namespace preload::run
