// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "world.hpp"

namespace preload::testing_mpi {
namespace {

std::unique_ptr<Group> world_group;

}  // namespace

Group& world() { return *world_group; }

std::unique_ptr<MpiGroup> own_group(std::size_t max_round_bytes) {
  MPI_Comm comm = MPI_COMM_NULL;  // left to MPI_Finalize: a pending collective may still use it
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<MpiGroup>(comm, max_round_bytes);
}

}  // namespace preload::testing_mpi

int main(int argc, char** argv) {
  using namespace preload;
  const Launcher launcher = detect_launcher();
  if (launcher.rank.value_or(0) != 0) testing::GTEST_FLAG(brief) = true;  // failures alone
  testing::InitGoogleTest(&argc, argv);
  auto& group = testing_mpi::world_group;
  group = make_mpi_group(launcher, std::chrono::seconds(60));
  const int failed = RUN_ALL_TESTS();
  group->finalize({"every rank's tests", Cancel()});
  return failed;
}
