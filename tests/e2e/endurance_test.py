# SPDX-License-Identifier: Apache-2.0
"""A thousand clients come and go, some of them killed, and the daemon stays as it was."""

import pathlib
import random
import subprocess
import sys
import unittest

import harness
from harness import HERE, eventually, make_llama

SMALL = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 512, "--intermediate", 96]
CYCLES = 1000
KILLED = 100
PER_PROCESS = 50  # attaches of one client process

CLIENT = """
import sys
sys.path.insert(0, sys.argv[1])
import preload
for _ in range(int(sys.argv[3])):
    with preload.attach(socket_dir=sys.argv[2]) as attachment:
        attachment["model.norm.weight"].numpy().sum()
"""


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def memory_kib(pid):
    """Anonymous and shared memory of the process that is resident."""
    fields = dict(
        line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem"))


class Endurance(harness.Case):
    def attach(self, times):
        python = str(harness.REPOSITORY / "python")
        subprocess.run(
            [sys.executable, "-c", CLIENT, python, str(self.sockets), str(times)],
            check=True, timeout=harness.COMMAND_S, env=harness.python_environment(),
        )  # fmt: skip

    def attach_and_die(self):
        """A client killed at some moment of its attach, or just after it."""
        process = subprocess.Popen(
            [sys.executable, str(HERE / "holder.py"), str(self.sockets), "host:0"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=harness.python_environment(),
        )  # fmt: skip
        if self.random.random() < 0.7:
            process.stdout.readline()
        else:
            try:
                process.wait(self.random.random() * 0.2)
            except subprocess.TimeoutExpired:
                pass
        process.kill()
        process.communicate()

    def leases(self):
        (daemon,) = self.status()
        return daemon["leases"]

    def test_a_thousand_attaches_of_which_a_hundred_are_killed_leave_nothing_behind(self):
        self.random = random.Random(5)
        daemon = self.start(make_llama(self.root / "model", *SMALL), "--layout", "hf").wait_ready()
        pid = self.pid_of_rank(0)
        self.attach(20)  # what the allocator keeps, it keeps now
        eventually(lambda: not self.leases(), 5, "no lease")
        before = descriptors(pid), memory_kib(pid)
        for i in range((CYCLES - KILLED) // PER_PROCESS):
            self.attach(PER_PROCESS)
            for _ in range(KILLED * PER_PROCESS // (CYCLES - KILLED) + (i % 9 < 5)):
                self.attach_and_die()
        eventually(lambda: not self.leases(), 5, "no lease")
        eventually(lambda: descriptors(pid) <= before[0], 5, "as few descriptors as before")
        self.assertLessEqual(memory_kib(pid) - before[1], 512)
        self.assert_stops_clean(daemon)


if __name__ == "__main__":
    unittest.main()
