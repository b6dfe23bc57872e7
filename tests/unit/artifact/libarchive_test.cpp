// SPDX-License-Identifier: Apache-2.0
#include "artifact/libarchive.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::artifact {
namespace {

using testing::HasSubstr;

TEST(LibArchiveLibrary, ThatIsNotThereIsSaidWithTheRemedy) {
  const LibArchive::Opened opened = LibArchive::open("no-such-libarchive.so", "/no/such/file");
  EXPECT_THAT(opened.problem, HasSubstr("install libarchive13"));
  // The C library has none of its functions.
  EXPECT_THAT(LibArchive::open("libc.so.6", "").problem, HasSubstr("is no libarchive"));
}

}  // namespace
}  // namespace preload::artifact
