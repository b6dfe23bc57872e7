# SPDX-License-Identifier: Apache-2.0
"""How much host memory this process may still take, by the machine and by its cgroups."""

from __future__ import annotations

from pathlib import Path


def free_bytes(root: str = "/") -> int:
    """Of what is left, the least: as `preload serve` reckons it before it takes any."""
    base = Path(root)
    free = _fields(base / "proc/meminfo")["MemAvailable:"] * 1024
    hierarchy = _hierarchy(base)
    if hierarchy is None:
        return free
    mount, path, limit, usage, reclaimable = hierarchy
    # A limit may sit on any ancestor; inside a container the path may not be visible, its root is.
    while True:
        left = _left(base / mount / path.lstrip("/"), limit, usage, reclaimable)
        free = free if left is None else min(free, left)
        if path in ("", "/"):
            return free
        path = path.rpartition("/")[0]


def _hierarchy(base: Path):
    """Where limit and use are kept: cgroup v1's memory controller, else v2."""
    found = None
    for line in _text(base / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            return ("sys/fs/cgroup/memory", path, *names)
        if not controllers:
            found = ("sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
    return found


def _left(directory: Path, limit_name: str, usage_name: str, reclaimable: str) -> int | None:
    limit, usage = (_text(directory / name).strip() for name in (limit_name, usage_name))
    if not limit.isdigit() or not usage.isdigit():  # "max", or not there
        return None
    held = max(0, int(usage) - _fields(directory / "memory.stat").get(reclaimable, 0))
    return max(0, int(limit) - held)


def _fields(path: Path) -> dict:
    """Of lines "name value" and "name: value kB"."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
