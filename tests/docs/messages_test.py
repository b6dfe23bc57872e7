#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The docs against the programs: quoted messages, environment variables, flags, metrics, links."""

import os
import pathlib
import re
import unittest

from messages import SOURCE, all_texts

DOCS = sorted([*(SOURCE / "docs").glob("*.md"), SOURCE / "README.md", SOURCE / "CONTRIBUTING.md"])
MANUAL = pathlib.Path(os.environ["PRELOAD_MANUAL_DIR"])


def section(text, heading):
    """The part of a page under a heading, up to the next of its rank."""
    level = len(heading) - len(heading.lstrip("#"))
    match = re.search(rf"(?ms)^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)", text)
    return match[1]


def quoted(text):
    """The code spans in the first column of a section's tables."""
    for row in re.findall(r"(?m)^\|([^|]*)\|", text):
        yield from re.findall(r"`([^`]+)`", row)


class Messages(unittest.TestCase):
    def test_every_quoted_message_is_one_of_ours(self):
        said = "\n".join(all_texts())
        seen = 0
        for page, heading in (("troubleshooting.md", "## What preload says"), ("operations.md", "## What the log says")):
            for message in quoted(section((SOURCE / "docs" / page).read_text(), heading)):
                for part in message.split("…"):
                    if part.strip(" :,;.-"):
                        self.assertIn(part, said, f"{page} quotes: {message}")
                        seen += 1
        self.assertGreater(seen, 50)

    def test_the_reading_of_c_sources_joins_what_the_compiler_joins(self):
        from messages import texts_of

        self.assertEqual(texts_of('f("a \\"b\\" "\n  // "no"\n  "c", \'"\', "d"); /* "e" */'), ['a "b" c', "d"])


class Names(unittest.TestCase):
    def sources(self):
        return "\n".join(p.read_text() for p in sorted((SOURCE / "src").rglob("*.?pp")))

    def test_every_variable_that_is_read_is_in_the_manual(self):
        read = set(re.findall(r'(?:getenv|environment)\("(PRELOAD_[A-Z_]+)"\)', self.sources()))
        self.assertGreater(len(read), 3)
        manual = (MANUAL / "man1/preload.1").read_text().replace("\\-", "-")
        for name in read:
            self.assertIn(name, manual)

    def test_every_variable_in_the_docs_is_read_or_built_with(self):
        known = self.sources() + "\n".join(
            path.read_text()
            for folder in ("cmake", "launch", "python", "tests", "include")
            for path in sorted((SOURCE / folder).rglob("*"))
            if path.is_file() and path.suffix in ("", ".cmake", ".txt", ".sh", ".py", ".in", ".h", ".hpp", ".cpp")
        )
        known += (SOURCE / "CMakeLists.txt").read_text()
        for page in DOCS:
            for name in set(re.findall(r"\b(PRELOAD_[A-Z][A-Z_]*[A-Z])\b", page.read_text())):
                self.assertRegex(known, rf"\b{name}\b", page.name)

    def test_every_metric_is_in_the_docs_and_no_other(self):
        served = set(re.findall(r'"(preload_[a-z_]+)"', (SOURCE / "src/serve/metrics.cpp").read_text()))
        named = set(re.findall(r"`(preload_[a-z_]+)`", section((SOURCE / "docs/operations.md").read_text(), "## Watch")))
        self.assertTrue(named)
        self.assertLessEqual(named, served)

    def test_the_operators_page_names_only_options_that_there_are(self):
        manual = "".join(page.read_text() for page in (MANUAL / "man1").glob("*.1")).replace("\\-", "-")
        for page in ("operations.md", "troubleshooting.md"):
            for name in set(re.findall(r"`preload[^`]* (--[a-z][a-z0-9-]+)", (SOURCE / "docs" / page).read_text())):
                self.assertIn(f"\\fB{name}\\fR", manual, page)


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        seen = 0
        for page in DOCS:
            for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
                if "://" in target:
                    continue
                path, _, anchor = target.partition("#")
                file = (page.parent / path).resolve() if path else page
                self.assertTrue(file.exists(), f"{page.name} → {target}")
                if anchor:
                    headings = re.findall(r"(?m)^#+ (.*)$", file.read_text())
                    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
                    self.assertIn(anchor, anchors, f"{page.name} → {target}")
                seen += 1
        self.assertGreater(seen, 20)


if __name__ == "__main__":
    unittest.main()
