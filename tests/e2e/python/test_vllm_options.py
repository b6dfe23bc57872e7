# SPDX-License-Identifier: Apache-2.0
"""The load format's options, which need no vLLM to be read."""

import unittest

import daemon  # noqa: F401  finds the package

import preload
from preload.vllm.options import Options, parse


class VllmOptions(unittest.TestCase):
    def test_defaults(self):
        expected = Options("zero_copy", True, None, None, 5.0, 300.0, 0.0, "")
        for nothing in (None, {}):
            self.assertEqual(parse(nothing), expected)

    def test_every_key(self):
        given = {
            "mode": "copy",
            "fallback": False,
            "socket_dir": "/run/p",
            "connect_timeout_s": 1,
            "state_timeout_s": 2.5,
            "wait_s": 3,
            "slot": "b",
        }
        self.assertEqual(parse(given), Options("copy", False, "/run/p", None, 1.0, 2.5, 3.0, "b"))
        self.assertEqual(parse({"socket_path": "/run/p/x.sock"}).socket_path, "/run/p/x.sock")

    def test_one_place_is_named_not_two(self):
        with self.assertRaisesRegex(preload.UsageError, "socket_dir and socket_path are both set"):
            parse({"socket_dir": "/run/p", "socket_path": "/run/p/x.sock"})

    def test_unknown_keys_are_named(self):
        with self.assertRaises(preload.UsageError) as caught:
            parse({"sockt_dir": "/run/p", "mode": "copy"})
        self.assertIn("sockt_dir", str(caught.exception))

    def test_wrong_values(self):
        for given in (
            {"mode": "zerocopy"},
            {"fallback": "false"},
            {"wait_s": -1},
            {"wait_s": True},
            {"state_timeout_s": "300"},
            {"connect_timeout_s": 0},
            {"state_timeout_s": None},
            {"wait_s": float("nan")},
            {"wait_s": [1]},
            {"slot": None},
            {"slot": 1},
            {"socket_dir": 7},
        ):
            with self.assertRaises(preload.UsageError, msg=given) as caught:
                parse(given)
            self.assertIn(next(iter(given)), str(caught.exception))


if __name__ == "__main__":
    unittest.main()
