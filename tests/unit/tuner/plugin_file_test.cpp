// SPDX-License-Identifier: Apache-2.0
#include "tuner/plugin_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace preload::test {
namespace {

using testing::HasSubstr;

// These tests lie in a folder of their own, with no plugin beside them.
TEST(TunerPluginFile, SaysWhereItLookedForThePlugin) {
  try {
    tuner::find_plugin();
    FAIL() << "found one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("install it with `cmake --install`"));
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    EXPECT_THAT(error.what(), HasSubstr("\n  " + (here / "libnccl-tuner-preload.so").string()));
  }
}

}  // namespace
}  // namespace preload::test
