// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "hook/supervisor.hpp"

int main(int argc, char** argv) {
  // A rank starts its own executable anew as the supervisor of a hook: here that is this one.
  if (argc == 3 && argv[1] == preload::hook::kSupervisorCommand) {
    return preload::hook::supervise(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
