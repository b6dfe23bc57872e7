# SPDX-License-Identifier: Apache-2.0
"""Kills in every order, on host memory: PRELOAD_TEST_ROUNDS rounds (default: 3)."""

import contextlib
import os
import pathlib
import random

import harness
from keeper_test import LIMIT_S, KeeperCase
from kill_matrix import ORDERS, Round

ROUNDS = int(os.environ.get("PRELOAD_TEST_ROUNDS", "3"))
SLAB = "memfd:preload-slab"
MODEL = ["--hidden", 256, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 2048, "--intermediate", 512]


def slabs_of(pid):
    """The inodes of the slabs of host memory that a process maps or has descriptors of."""
    entry = pathlib.Path(f"/proc/{pid}")
    slabs = {int(line.split()[4]) for line in (entry / "maps").read_text().splitlines() if SLAB in line}
    return slabs | {link.stat().st_ino for link in (entry / "fd").iterdir() if SLAB in os.readlink(link)}


def holders_of(slabs):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # processes come and go
            if entry.name.isdigit() and slabs & slabs_of(entry.name):
                found.append(int(entry.name))
    return found


@harness.needs_python_client
class Rounds(KeeperCase):
    def test_whoever_is_killed_the_weights_and_leases_are_right_and_go_in_the_end(self):
        model = self.settled_model(*MODEL)
        orders = random.sample(ORDERS * -(-ROUNDS // len(ORDERS)), ROUNDS)
        for number, order in enumerate(orders):
            with self.subTest(round=number, order=order):
                one = Round(self, model, slabs_of=slabs_of)
                one.run(order)
                self.assertGreaterEqual(one.adopted, 1)
                self.assertTrue(one.slabs)
                harness.eventually(lambda: not holders_of(one.slabs), LIMIT_S, "the memory to be free")


if __name__ == "__main__":
    harness.unittest.main()
