# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup of a test's own, v1 or v2, where this process may make one."""

import contextlib
import os
import pathlib
import unittest

HIERARCHY = pathlib.Path("/sys/fs/cgroup")


def own_path(controllers):
    """Where this process is in the hierarchy that /proc/self/cgroup names so, or None."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controllers in names.split(","):
            return path.lstrip("/")
    return None


def candidates():
    """Groups that a child could be made in, with the names of its limit and its peak."""
    v1, v2 = own_path("memory"), own_path("")
    if v1 is not None:
        for path in (v1, ""):
            yield HIERARCHY / "memory" / path, "memory.limit_in_bytes", "memory.max_usage_in_bytes"
    elif v2 is not None:
        for path in (v2, ""):
            yield HIERARCHY / path, "memory.max", "memory.peak"


class MemoryGroup:
    """Holds what joins it to `limit_bytes`; skips the test where no such group can be made."""

    def __init__(self, limit_bytes):
        reasons = []
        for parent, limit, peak in candidates():
            path = parent / f"preload-test-{os.getpid()}"
            try:
                path.mkdir()
            except OSError as error:
                reasons.append(f"{path}: {error.strerror}")
                continue
            try:
                with contextlib.suppress(OSError):  # v2 gives a child what its parent hands down
                    (parent / "cgroup.subtree_control").write_text("+memory")
                (path / limit).write_text(str(limit_bytes))
            except OSError as error:
                path.rmdir()
                reasons.append(f"{path / limit}: {error.strerror}")
                continue
            self.path, self.peak = path, path / peak
            return
        raise unittest.SkipTest(f"no memory cgroup can be made: {'; '.join(reasons) or 'none is mounted'}")

    @property
    def procs(self):
        """What a process writes its id to, to join."""
        return self.path / "cgroup.procs"

    def peak_bytes(self):
        """The most it has held, page cache included; None where the kernel does not say."""
        return int(self.peak.read_text()) if self.peak.exists() else None

    def remove(self):
        """Whether it is gone, which it can be once no process is left in it."""
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True
