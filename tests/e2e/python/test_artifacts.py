# SPDX-License-Identifier: Apache-2.0
"""Artifacts through Python: what one process leaves with a daemon, another gets."""

import subprocess
import sys
import unittest

from with_daemon import WithDaemon

import preload


class Artifacts(WithDaemon):
    def put(self, *arguments, **options):
        preload.put_artifact(*arguments, socket_dir=self.directory, **options)

    def get(self, key):
        return preload.get_artifact(key, socket_dir=self.directory)

    def test_another_process_gets_what_was_put(self):
        program = (
            "import preload, sys\n"
            "preload.put_artifact('kind/conf/a.bin', bytes(range(256)), 'H200', socket_dir=sys.argv[1])"
        )
        subprocess.run([sys.executable, "-c", program, self.directory], check=True, timeout=60)
        self.assertEqual(self.get("kind/conf/a.bin"), preload.Artifact(bytes(range(256)), "H200"))

    def test_the_same_key_replaces(self):
        self.put("k", b"old", "1")
        self.put("k", b"new")
        self.assertEqual(self.get("k"), preload.Artifact(b"new", ""))

    def test_what_is_not_there_is_none(self):
        self.assertIsNone(self.get("absent"))

    def test_bad_keys_and_sizes_are_refused(self):
        for key in ("../up", "", "a b", "nul\0"):
            with self.assertRaises(preload.UsageError):
                self.put(key, b"x")
        with self.assertRaises(preload.UsageError):
            self.put("empty", b"")

    def test_no_daemon(self):
        with self.assertRaises(preload.Unavailable):
            preload.put_artifact("k", b"x", socket_dir=self.directory, device="host:7")


if __name__ == "__main__":
    unittest.main()
