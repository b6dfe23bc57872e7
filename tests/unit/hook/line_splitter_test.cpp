// SPDX-License-Identifier: Apache-2.0
#include "hook/line_splitter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace preload::hook {
namespace {

using testing::ElementsAre;

std::vector<std::string> lines_of(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  for (const std::string& piece : pieces) splitter.add(piece);
  splitter.end();
  return lines;
}

TEST(LineSplitter, MakesLinesOfWhatArrivesInPieces) {
  EXPECT_THAT(lines_of({"on", "e\ntw", "o\n", "thr", "ee"}), ElementsAre("one", "two", "three"));
  EXPECT_THAT(lines_of({"\n\na\n\n"}), ElementsAre("a"));
  EXPECT_THAT(lines_of({}), ElementsAre());
}

TEST(LineSplitter, KeepsTheLastOfWhatAProgressBarOverwrites) {
  EXPECT_THAT(lines_of({" 10%\r 50%\r100%\n"}), ElementsAre("100%"));
  EXPECT_THAT(lines_of({" 10%\r", "100%"}), ElementsAre("100%"));
  EXPECT_THAT(lines_of({"of another system\r\n"}), ElementsAre("of another system"));
}

TEST(LineSplitter, LeavesOutWhatOnlyATerminalUnderstands) {
  EXPECT_THAT(lines_of({"\x1b[31mred\x1b[0m \x1b(Bplain\ta\x07\n"}), ElementsAre("red Bplain a"));
  EXPECT_THAT(lines_of({"cut off \x1b[3\n", "next\n"}), ElementsAre("cut off ", "next"));
  EXPECT_THAT(lines_of({"größer\n"}), ElementsAre("größer"));
}

TEST(LineSplitter, CutsALineThatDoesNotEnd) {
  const std::vector<std::string> lines = lines_of({std::string(100'000, 'x'), "\nnext\n"});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_LT(lines[0].size(), 5000U);
  EXPECT_TRUE(lines[0].starts_with("xxxx"));
  EXPECT_TRUE(lines[0].ends_with("…"));
  EXPECT_EQ(lines[1], "next");
}

}  // namespace
}  // namespace preload::hook
