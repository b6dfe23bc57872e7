// SPDX-License-Identifier: Apache-2.0
#include "manual/roff.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::manual::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(Roff, EscapesWhatItWouldTakeForItsOwn) {
  Roff page;
  page.paragraphs("a \\n 'b' c~d e\u2026f");
  EXPECT_EQ(page.text(), "a \\en \\(aqb\\(aq c\\(tid e\\[u2026]f\n");
}

TEST(Roff, NoTextBeginsALineWithAControlCharacter) {
  Roff page;
  page.entry(bold("x"), ".sock files end so");
  EXPECT_THAT(page.text(), EndsWith("\n\\&.sock files end so\n"));
}

TEST(Roff, DashesOfWhatIsTypedCanBeCopied) {
  Roff page;
  page.paragraphs("with --max-things a well-known limit");
  EXPECT_EQ(page.text(), "with \\-\\-max\\-things a well-known limit\n");
  EXPECT_EQ(bold("-tp"), "\\fB\\-tp\\fR");
}

TEST(Roff, SentencesAndLongTextsAreBrokenIntoLines) {
  Roff page;
  page.paragraphs("One. " + std::string(70, 'a') + " " + std::string(70, 'b'));
  EXPECT_EQ(page.text(), "One.\n" + std::string(70, 'a') + "\n" + std::string(70, 'b') + "\n");
}

TEST(Roff, AnExampleRightBehindAHeadingHasNoParagraphBeforeIt) {
  Roff page;
  page.section("EXAMPLES");
  page.example("First:", "a --b");
  EXPECT_THAT(page.text(), Not(HasSubstr(".SH EXAMPLES\n.PP")));
  EXPECT_THAT(page.text(), HasSubstr(".nf\n\\&a \\-\\-b\n.fi\n"));
}

}  // namespace
}  // namespace preload::manual::test
