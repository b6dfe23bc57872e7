#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual pages and completions in PRELOAD_MANUAL_DIR, as man, bash, zsh and fish read them."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

MANUAL = pathlib.Path(os.environ["PRELOAD_MANUAL_DIR"])
LIMIT_S = 60


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, **options)


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed here")


class ManualPages(unittest.TestCase):
    def pages(self):
        pages = sorted((MANUAL / "man1").glob("*.1"))
        self.assertGreater(len(pages), 10)
        return pages

    @needs("man")
    def test_man_formats_every_page_without_a_warning(self):
        for page in self.pages():
            done = run("man", "--warnings=w", "-E", "UTF-8", "-l", page, env={**os.environ, "LC_ALL": "C.UTF-8"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), page)
            for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "EXAMPLES", "SEE ALSO"):
                self.assertIn(f"\n{heading}", "\n" + done.stdout, page)

    @needs("mandoc")
    def test_mandoc_has_no_warning_either(self):
        for page in self.pages():
            done = run("mandoc", "-Tlint", "-Wwarning", page)
            self.assertEqual((done.returncode, done.stdout), (0, ""), page)

    def test_every_page_that_is_referred_to_is_there(self):
        names = {page.name for page in self.pages()}
        for page in self.pages():
            see_also = page.read_text().split(".SH SEE ALSO\n")[1].replace("\\-", "-")
            for line in see_also.replace("\\fB", "").replace("\\fR", "").split():
                self.assertIn(line.rstrip(",").replace("(1)", ".1"), names)


# Completes the words given as the shell would at the end of the last one.
BASH = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_preload preload "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@needs("bash")
class BashCompletion(unittest.TestCase):
    def complete(self, *words, cwd=None):
        done = run("bash", "--norc", "-uc", BASH, "bash", MANUAL / "bash/preload", "preload", *words, cwd=cwd)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return set(done.stdout.split())

    def test_commands_come_first(self):
        self.assertEqual(self.complete("sta"), {"status"})
        self.assertLessEqual({"serve", "plan", "stop", "help"}, self.complete(""))
        self.assertEqual(self.complete("help", "ver"), {"verify"})

    def test_options_are_those_of_the_command(self):
        self.assertEqual(self.complete("stop", "--jo"), {"--job"})
        self.assertNotIn("--ranks", self.complete("stop", "--"))
        self.assertEqual(self.complete("plan", "--ran"), {"--ranks", "--rank"})
        self.assertEqual(self.complete("--tens"), {"--tensor-parallel-size"}, "serve's, without a command")

    def test_values_are_offered(self):
        self.assertEqual(self.complete("serve", "--device", ""), {"cuda", "host"})
        self.assertEqual(self.complete("serve", "--expert_placement_strategy", "r"), {"round_robin"})
        self.assertEqual(self.complete("serve", "--layout", "=", "tr"), {"transformers"})
        self.assertEqual(self.complete("serve", "--layout", "="), {"vllm", "hf", "transformers"})
        self.assertEqual(self.complete("plan", "--ranks", ""), set(), "a number is the user's")
        self.assertEqual(self.complete("bench", ""), {"load"})

    def test_a_switch_of_one_command_takes_a_value_in_another(self):
        self.assertEqual(self.complete("stop", "--job", "--jso"), {"--json"})
        self.assertEqual(self.complete("wait", "--job", "--jso"), set())

    def test_paths_are_offered_where_paths_are_wanted(self):
        with tempfile.TemporaryDirectory() as directory:
            (pathlib.Path(directory) / "llama-70b").mkdir()
            self.assertEqual(self.complete("serve", "--model", "lla", cwd=directory), {"llama-70b"})
            self.assertEqual(self.complete("key", "lla", cwd=directory), {"llama-70b"})

    @needs("shellcheck")
    def test_is_clean_for_shellcheck(self):
        done = run("shellcheck", MANUAL / "bash/preload")
        self.assertEqual(done.returncode, 0, done.stdout)


class OtherShells(unittest.TestCase):
    @needs("zsh")
    def test_zsh_reads_its_completion(self):
        done = run("zsh", "-f", "-c", f"autoload -U compinit; compinit -D; source {MANUAL}/zsh/_preload; "
                   "print -r -- $_comps[preload]")  # fmt: skip
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "_preload\n", ""))

    @needs("fish")
    def test_fish_completes(self):
        with tempfile.TemporaryDirectory() as home:
            def complete(line):
                done = run("fish", "--no-config", "-c", f"source {MANUAL}/fish/preload.fish; complete -C '{line}'",
                           env={**os.environ, "HOME": home})  # fmt: skip
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                return {row.split("\t")[0] for row in done.stdout.splitlines()}

            self.assertEqual(complete("preload sta"), {"status"})
            self.assertEqual(complete("preload stop --jo"), {"--job"})
            self.assertEqual(complete("preload serve --device "), {"cuda", "host"})


if __name__ == "__main__":
    unittest.main()
