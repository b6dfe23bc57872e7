# SPDX-License-Identifier: Apache-2.0
"""Free memory of the host as control groups bound it, against trees of files that look like theirs."""

import os
import pathlib
import tempfile
import unittest

import daemon  # noqa: F401  finds the package

from preload._host_memory import free_host_bytes

MIB = 1 << 20


class HostMemory(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        self.write("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 4096000 kB\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group(self, name, limit, usage, cache, version=2):
        limit_name, usage_name, cache_name = {
            2: ("memory.max", "memory.current", "inactive_file"),
            1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        }[version]
        self.write(f"{name}/{limit_name}", f"{limit}\n")
        self.write(f"{name}/{usage_name}", f"{usage}\n")
        self.write(f"{name}/memory.stat", f"anon 1\n{cache_name} {cache}\n")

    def free(self):
        return free_host_bytes(str(self.root / "proc"), str(self.root / "cgroup"))

    def test_without_groups_it_is_the_hosts(self):
        self.assertEqual(self.free(), 4096000 * 1024)

    def test_the_tightest_group_counts_and_cache_that_can_go_is_free(self):
        self.write("proc/self/cgroup", "0::/job/step\n")
        self.group("cgroup/job", 1000 * MIB, 900 * MIB, 50 * MIB)
        self.group("cgroup/job/step", 600 * MIB, 100 * MIB, 0)
        self.assertEqual(self.free(), 150 * MIB)
        self.group("cgroup/job", "max", 900 * MIB, 0)
        self.assertEqual(self.free(), 500 * MIB)
        self.group("cgroup/job/step", 600 * MIB, 700 * MIB, 0)
        self.assertEqual(self.free(), 0)

    def test_the_first_version_of_groups(self):
        self.write("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job\n")
        self.group("cgroup/memory", 0x7FFFFFFFFFFFF000, 5, 0, version=1)
        self.group("cgroup/memory/job", 300 * MIB, 200 * MIB, 10 * MIB, version=1)
        self.assertEqual(self.free(), 110 * MIB)

    def test_of_this_machine(self):
        free = free_host_bytes()
        self.assertGreater(free, 0)
        self.assertLessEqual(free, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    unittest.main()
