// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "gpu/helper_process.hpp"

int main(int argc, char** argv) {
  if (const int status = preload::test::run_helper_role(argc, argv); status >= 0) return status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
