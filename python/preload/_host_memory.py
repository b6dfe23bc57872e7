# SPDX-License-Identifier: Apache-2.0
"""How much memory of the host a process may still take."""

from __future__ import annotations

import os

_UNLIMITED = 1 << 60  # at least: what the first version of control groups says for no limit


def free_host_bytes(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """What the host has free, or less where a control group bounds it; page cache that can go is free."""
    with open(os.path.join(proc, "meminfo")) as meminfo:
        fields = dict(line.split(":") for line in meminfo)
    available = int(fields["MemAvailable"].split()[0]) * 1024
    return min([available, *_left_by_groups(os.path.join(proc, "self", "cgroup"), groups)])


def _left_by_groups(own: str, root: str) -> list[int]:
    """By each limit from the process's own group upwards, in either version of control groups."""
    try:
        with open(own) as lines:
            groups = [line.rstrip("\n").split(":", 2) for line in lines]
    except OSError:
        return []
    left = []
    for _, controllers, path in groups:
        is_unified = controllers == ""
        if not is_unified and "memory" not in controllers.split(","):
            continue
        names = (
            ("memory.max", "memory.current", "inactive_file")
            if is_unified
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        base = root if is_unified else os.path.join(root, "memory")
        folder = os.path.normpath(base + path)
        while folder.startswith(base):
            if (room := _room_in(folder, *names)) is not None:
                left.append(room)
            folder = os.path.dirname(folder)
    return left


def _room_in(folder: str, limit_name: str, usage_name: str, cache_name: str) -> int | None:
    def read(name: str) -> str:
        with open(os.path.join(folder, name)) as text:
            return text.read()

    try:
        limit = read(limit_name).strip()
        if limit == "max" or int(limit) >= _UNLIMITED:
            return None
        stat = dict(line.split() for line in read("memory.stat").splitlines())
        return max(0, int(limit) - int(read(usage_name)) + int(stat.get(cache_name, 0)))
    except (OSError, ValueError):
        return None  # a group without this controller, or one that is not ours to see
