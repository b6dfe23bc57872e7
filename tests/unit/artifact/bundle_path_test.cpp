// SPDX-License-Identifier: Apache-2.0
#include "artifact/bundle_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::artifact {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(BundlePath, IsNamesBelowARoot) {
  EXPECT_THAT(path_names("a"), ElementsAre("a"));
  EXPECT_THAT(path_names("a/b.c/d"), ElementsAre("a", "b.c", "d"));
  EXPECT_THAT(path_names("a/b/"), ElementsAre("a", "b"));
  EXPECT_THAT(path_names("..."), ElementsAre("..."));
  for (const std::string path :
       {"", "/", "/a", "..", "../a", "a/..", "a/../b", "./a", "a/./b", "a//b", "a//"}) {
    EXPECT_THAT(path_names(path), IsEmpty()) << path;
  }
  EXPECT_THAT(path_names(std::string(256, 'a')), IsEmpty());
  EXPECT_THAT(path_names(std::string(5000, 'a')), IsEmpty());
}

TEST(BundlePath, ALinkStaysInsideWhenItGoesUpNoFurtherThanTheRoot) {
  EXPECT_TRUE(link_stays_inside("b", 0));
  EXPECT_TRUE(link_stays_inside("b/c", 0));
  EXPECT_TRUE(link_stays_inside("..", 1));
  EXPECT_TRUE(link_stays_inside("../../b", 2));
  EXPECT_FALSE(link_stays_inside("..", 0));
  EXPECT_FALSE(link_stays_inside("../../../b", 2));
  EXPECT_FALSE(link_stays_inside("/etc/passwd", 5));
  EXPECT_FALSE(link_stays_inside("", 1));
  // Through another link this would lead out.
  EXPECT_FALSE(link_stays_inside("b/../c", 5));
}

}  // namespace
}  // namespace preload::artifact
