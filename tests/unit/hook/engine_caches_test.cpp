// SPDX-License-Identifier: Apache-2.0
#include "hook/engine_caches.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

namespace preload::hook {
namespace {

namespace fs = std::filesystem;

TEST(EngineCaches, LieBelowTheRootButForThoseThatTheUserHasNamed) {
  const auto caches = engine_caches("/c", {"TRITON_CACHE_DIR=/mine", "VLLM_CACHE_ROOT="});
  EXPECT_EQ(folder_of(caches, "TRITON_CACHE_DIR"), "/mine");
  EXPECT_EQ(folder_of(caches, "VLLM_CACHE_ROOT"), "/c/caches/vllm");
  EXPECT_EQ(folder_of(caches, "TORCHINDUCTOR_CACHE_DIR"), "/c/caches/inductor");
  EXPECT_EQ(folder_of(caches, "ANOTHER"), "");
}

TEST(EngineCaches, AreToldToAShellWhateverTheirNames) {
  const test::TempDir temp;
  const std::string root = temp / "it's a $dir";
  const auto caches = engine_caches(root, {});
  const std::string script = prepare(root, caches);
  EXPECT_TRUE(fs::is_directory(folder_of(caches, "VLLM_CACHE_ROOT")));
  const std::string told = temp / "told";
  const std::string command = ". \"" + std::string(temp / "it's a \\$dir/environment.sh") +
                              "\" && printf %s \"$TRITON_CACHE_DIR\" > " + told;
  EXPECT_EQ(script, root + "/environment.sh");
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::string line;
  std::getline(std::ifstream(told), line);
  EXPECT_EQ(line, root + "/caches/triton");
}

TEST(EngineCaches, SayWhatCannotBeMade) {
  const test::TempDir temp;
  std::ofstream(temp / "file") << "x";
  const std::string root = temp / "file/below";
  try {
    prepare(root, engine_caches(root, {}));
    FAIL() << "it made directories in a file";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(root));
    EXPECT_THAT(error.what(), testing::HasSubstr("--warmup-cache-dir"));
  }
}

TEST(EngineCaches, AreRefusedWhereEveryoneMayWrite) {
  const test::TempDir temp;
  const std::string root = temp / "open";
  fs::create_directory(root);
  fs::permissions(root, fs::perms::all);
  try {
    prepare(root, engine_caches(root, {}));
    FAIL() << "it keeps what engines run where everyone may change it";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("chmod o-w"));
  }
  const std::string own = temp / "own";
  const mode_t before = ::umask(0);
  EXPECT_NO_THROW(prepare(own, engine_caches(own, {})));
  ::umask(before);
  EXPECT_EQ(fs::status(own + "/caches/triton").permissions() & fs::perms::others_write,
            fs::perms::none);
}

}  // namespace
}  // namespace preload::hook
