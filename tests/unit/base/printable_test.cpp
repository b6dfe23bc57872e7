// SPDX-License-Identifier: Apache-2.0
#include "base/printable.hpp"

#include <gtest/gtest.h>

namespace preload {
namespace {

TEST(Printable, TextFromOutsideStaysOnItsLine) {
  EXPECT_EQ(one_line("Llama\npreload: END status=0"), "Llama\\npreload: END status=0");
  EXPECT_EQ(one_line("a\rb\tc\x1b[2Jd\x7f"), "a\\x0db\\tc\\x1b[2Jd\\x7f");
  EXPECT_EQ(one_line("\xc2\x9b"
                     "2J"),
            "\\x9b2J");
}

TEST(Printable, OrdinaryTextStaysAsItIs) {
  const std::string text = "/modèles/ラマ 8B (é, ü, \xc2\xa0)";
  EXPECT_EQ(one_line(text), text);
  EXPECT_EQ(indented(text), text);
}

TEST(Printable, FurtherLinesAreIndented) {
  EXPECT_EQ(indented("two things:\none\ntwo\x1b"), "two things:\n  one\n  two\\x1b");
}

}  // namespace
}  // namespace preload
