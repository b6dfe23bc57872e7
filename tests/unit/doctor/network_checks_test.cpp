// SPDX-License-Identifier: Apache-2.0
#include "doctor/network_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "unit/serve/temp_dir.hpp"

namespace preload::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<Interface> kInterfaces{
    {"lo", "127.0.0.1"}, {"eth0", "10.0.0.5"}, {"ib0", "10.1.0.5"}};
const std::vector<std::string> kAdapters{"mlx5_0"};

Grade grade(const char* name, const char* value) {
  return check_network(kInterfaces, kAdapters, Variables::of({{name, value}})).grade;
}

TEST(NetworkCheck, IsRightWithoutAWordAndWithInterfacesThatAreThere) {
  const Check check = check_network(kInterfaces, kAdapters, {});
  EXPECT_EQ(check.grade, Grade::kOk);
  EXPECT_THAT(check.text, HasSubstr("eth0 10.0.0.5"));
  for (const char* list : {"eth0", "eth", "ib,eth", "=ib0", "^docker", "eth0:9999"})
    EXPECT_EQ(grade("NCCL_SOCKET_IFNAME", list), Grade::kOk) << list;
  for (const char* list : {"eth0", "10.0.0.0/8", "eth0,ib0"})
    EXPECT_EQ(grade("OMPI_MCA_btl_tcp_if_include", list), Grade::kOk) << list;
  for (const char* list : {"mlx5_0:1", "eth0", "all", "mlx5_0:1,ib0"})
    EXPECT_EQ(grade("UCX_NET_DEVICES", list), Grade::kOk) << list;
}

TEST(NetworkCheck, RefusesInterfacesThatAreNotThere) {
  EXPECT_EQ(grade("NCCL_SOCKET_IFNAME", "bond0"), Grade::kFail);
  EXPECT_EQ(grade("NCCL_SOCKET_IFNAME", "=eth"), Grade::kFail);
  EXPECT_EQ(grade("OMPI_MCA_btl_tcp_if_include", "eth0,eth7"), Grade::kFail);
  EXPECT_EQ(grade("UCX_NET_DEVICES", "mlx5_1:1"), Grade::kFail);
  const Check check =
      check_network(kInterfaces, kAdapters, Variables::of({{"NCCL_SOCKET_IFNAME", "bond0"}}));
  EXPECT_EQ(check.code, Errc::kLauncher);
  EXPECT_THAT(check.text, HasSubstr("NCCL_SOCKET_IFNAME=\"bond0\""));
}

TEST(NetworkCheck, WarnsOfAHostThatNobodyReaches) {
  EXPECT_EQ(check_network({{"lo", "127.0.0.1"}}, {}, {}).grade, Grade::kWarn);
  EXPECT_EQ(check_network({{"lo", "::1"}, {"eth0", "fe80::1%eth0"}}, {}, {}).grade, Grade::kWarn);
}

TEST(NetworkFacts, NameAdaptersAndTheLoopback) {
  const TempDir temp;
  for (const char* name : {"mlx5_1", "mlx5_0"})
    std::filesystem::create_directories(temp.file(std::string("class/infiniband/") + name));
  EXPECT_THAT(gather_adapters(temp.path()), ElementsAre("mlx5_0", "mlx5_1"));
  EXPECT_TRUE(gather_adapters(temp.file("none")).empty());
}

}  // namespace
}  // namespace preload::doctor
