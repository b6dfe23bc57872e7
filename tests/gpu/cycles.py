#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attaches and detaches N times, some of them by processes that are killed while attached, and
checks that the daemon has as many descriptors and as much memory afterwards as before.

    cycles.py DAEMON_PID [--cycles 1000] [--killed 100]

Needs no torch. Prints one JSON object; exits 1 when something grew.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

KILLED_CLIENT = """
import os, signal, preload
shard = preload.attach(gpu=0, wait=30)
os.kill(os.getpid(), signal.SIGKILL)
"""
AT_ONCE = 8
RSS_SLACK_KB = 4096


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_kb(pid: int) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def gpu_used_mib() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0])


def run_killed(count: int) -> int:
    """How many of `count` clients ended by their own SIGKILL, as all should."""
    killed, running = 0, []
    started = 0
    while started < count or running:
        while started < count and len(running) < AT_ONCE:
            running.append(subprocess.Popen([sys.executable, "-c", KILLED_CLIENT]))
            started += 1
        killed += running.pop(0).wait(timeout=120) == -signal.SIGKILL
    return killed


def settle(pid: int) -> dict:
    """The daemon's figures once its descriptors have not changed for half a second (5 s at most)."""
    deadline = time.monotonic() + 5
    last, since = descriptors(pid), time.monotonic()
    while time.monotonic() - since < 0.5 and time.monotonic() < deadline:
        time.sleep(0.02)
        now = descriptors(pid)
        if now != last:
            last, since = now, time.monotonic()
    return {"fds": descriptors(pid), "rss_kb": resident_kb(pid)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pid", type=int)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--killed", type=int, default=100)
    args = parser.parse_args()
    import preload

    # Held throughout: keeps the process's CUDA context, which takes 300 ms to make.
    held = preload.attach(gpu=0, wait=30)
    for _ in range(20):  # allocators and caches reach their size
        preload.attach(gpu=0, wait=30).detach()
    before = settle(args.pid)
    gpu_before = gpu_used_mib()
    start = time.perf_counter()
    for _ in range(args.cycles - args.killed):
        preload.attach(gpu=0, wait=30).detach()
    attach_ms = (time.perf_counter() - start) * 1000 / (args.cycles - args.killed)
    killed = run_killed(args.killed)
    after = settle(args.pid)
    time.sleep(0.5)  # the driver takes a killed process's memory back a little later
    gpu_after = gpu_used_mib()
    held.detach()
    ok = (
        killed == args.killed
        and after["fds"] == before["fds"]
        and after["rss_kb"] <= before["rss_kb"] + RSS_SLACK_KB
        and gpu_after <= gpu_before + 2
    )
    result = {
        "cycles": args.cycles,
        "killed": killed,
        "cycle_ms": round(attach_ms, 2),
        "fds": [before["fds"], after["fds"]],
        "rss_kb": [before["rss_kb"], after["rss_kb"]],
        "gpu_mib": [gpu_before, gpu_after],
        "ok": ok,
    }
    print(json.dumps(result), flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
