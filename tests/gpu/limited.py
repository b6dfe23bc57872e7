#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a checkpoint from a process whose host memory is limited to a part of the checkpoint's size,
by a memory cgroup: what lies on the GPU needs none.

    limited.py PRELOAD MODEL [--part 10] [--device cuda]

Prints one JSON object; exits 1 when the daemon was not READY within the limit, 77 where no cgroup can
be made.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from memory_group import MemoryGroup  # noqa: E402

READY_S = 180


def run(preload: str, *arguments: str) -> bool:
    return subprocess.run([preload, *arguments], stdout=sys.stderr, timeout=2 * READY_S).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preload")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--part", type=float, default=10)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    stored = sum(path.stat().st_size for path in args.model.glob("*.safetensors"))
    limit = int(stored / args.part)
    try:
        group = MemoryGroup(limit)
    except unittest.SkipTest as skip:
        print(json.dumps({"skipped": str(skip)}))
        return 77
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o700)
        where = ["--weight-cache-socket-dir", directory]
        serve = [args.preload, "serve", "--model", str(args.model), "--device", args.device, "--layout", "hf"]
        script = f'echo $$ > "{group.procs}"; exec "$@"'
        daemon = subprocess.Popen(["sh", "-c", script, "sh", *serve, *where], stdout=sys.stderr)
        ready = run(args.preload, "wait", "--timeout", str(READY_S), *where)
        peak = group.peak_bytes()
        right = ready and run(args.preload, "verify", *where)
        stopped = run(args.preload, "stop", *where) and daemon.wait(READY_S) == 0
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()
    group.remove()
    ok = right and stopped and (peak is None or peak <= limit)
    mib = {name: value and round(value / 2**20) for name, value in
           (("checkpoint", stored), ("limit", limit), ("peak", peak))}  # fmt: skip
    print(json.dumps({"ok": ok, "mib": mib}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
