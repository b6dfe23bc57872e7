# SPDX-License-Identifier: Apache-2.0
"""Free host memory, over made-up /proc and /sys."""

import tempfile
import unittest
from pathlib import Path

import daemon  # noqa: F401  finds the package

from preload import _host_memory

GIB = 1 << 30


class HostMemory(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.write("proc/meminfo", f"MemTotal: {100 * GIB // 1024} kB\nMemAvailable: {64 * GIB // 1024} kB\n")

    def write(self, name: str, text) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def free(self) -> int:
        return _host_memory.free_bytes(str(self.root))

    def cgroup2(self, path: str, limit, usage: int, inactive: int = 0) -> None:
        self.write(f"sys/fs/cgroup/{path}/memory.max", limit)
        self.write(f"sys/fs/cgroup/{path}/memory.current", usage)
        self.write(f"sys/fs/cgroup/{path}/memory.stat", f"anon 1\ninactive_file {inactive}")

    def test_is_the_machines_without_a_cgroup(self):
        self.assertEqual(self.free(), 64 * GIB)

    def test_is_what_the_cgroup_leaves_page_cache_aside(self):
        self.write("proc/self/cgroup", "0::/pod/box")
        self.cgroup2("pod/box", 20 * GIB, 15 * GIB, 4 * GIB)
        self.assertEqual(self.free(), 9 * GIB)

    def test_an_ancestors_limit_counts_and_no_limit_does_not(self):
        self.write("proc/self/cgroup", "0::/pod/box")
        self.cgroup2("pod/box", "max", 15 * GIB)
        self.assertEqual(self.free(), 64 * GIB)
        self.cgroup2("pod", 30 * GIB, 28 * GIB)
        self.assertEqual(self.free(), 2 * GIB)

    def test_a_limit_that_sits_at_the_mount_of_a_container_counts(self):
        self.write("proc/self/cgroup", "0::/not/visible/here")
        self.cgroup2("", 8 * GIB, 9 * GIB)
        self.assertEqual(self.free(), 0)

    def test_version_1(self):
        self.write("proc/self/cgroup", "5:cpu,memory:/job\n0::/other")
        self.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", 10 * GIB)
        self.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", 7 * GIB)
        self.write("sys/fs/cgroup/memory/job/memory.stat", f"total_inactive_file {GIB}")
        self.assertEqual(self.free(), 4 * GIB)

    def test_of_this_machine_is_something(self):
        self.assertGreater(_host_memory.free_bytes(), 0)


if __name__ == "__main__":
    unittest.main()
