#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Absent, loading, failed, released and mismatching daemons; part of tests/engines/vllm_cpu.

vllm_fallback.py PRELOAD WORK
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import daemon
from vllm_engine import EngineFailed, Engines, Table

FROM_DISK = "preload: loading target from disk, since "


class Fallback:
    def __init__(self, program: str, work: pathlib.Path):
        self.program, self.work, self.engines = program, work, Engines(work)
        self.model = daemon.write_model(work / "llama", "llama")
        self.other = daemon.write_model(work / "other", "llama", seed=2)
        self.expected = self.engines.run(self.model, "auto")["tokens"]

    def from_disk(self, cause: str, **extra) -> str:
        """The engine serves from disk, and says why, once."""
        got = self.engines.run(self.model, extra=extra)
        assert got["tokens"] == self.expected, got["tokens"]
        said = [line for line in got["lines"] if line.startswith(FROM_DISK)]
        assert len(said) == 1 and said[0].startswith(FROM_DISK + cause), got["lines"]
        return said[0]

    def fails(self, error: str, **extra) -> None:
        """The engine does not come up, for the reason named."""
        try:
            self.engines.run(self.model, extra=extra)
        except EngineFailed as failed:
            assert f"preload.errors.{error}:" in str(failed), str(failed)[-1500:]
            assert FROM_DISK not in str(failed)
            return
        raise AssertionError("the engine came up")

    def absent(self) -> str:
        self.fails("Unavailable", fallback=False)
        return self.from_disk("unavailable")

    def mismatch(self) -> str:
        with daemon.Served(self.program, "--model", self.other):
            self.fails("Mismatch", fallback=False)
            return self.from_disk("mismatch")

    def other_layout(self) -> str:
        with daemon.Served(self.program, "--model", self.model, "--layout", "transformers"):
            return self.from_disk("mismatch")

    def comes_later(self) -> None:
        """wait_s: the daemon is started after the engine."""
        engine = self.engines.start(self.model, extra={"fallback": False, "wait_s": 300})
        with daemon.Served(self.program, "--model", self.model):
            got = self.engines.finish(engine)
        assert got["tokens"] == self.expected, got["tokens"]
        assert not [line for line in got["lines"] if line.startswith(FROM_DISK)], got["lines"]

    def loading(self) -> None:
        """A lock that is held: the engine waits, then raises, and never loads a second copy."""
        held = pathlib.Path(self.program).parents[1] / "tests/e2e/python/preload_test_daemon"
        command = [str(held), os.environ["PRELOAD_SOCKET_DIR"], "--loading"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loading:
            try:
                assert loading.stdout.readline().strip() == "LOADING"
                self.fails("Timeout", fallback=True, state_timeout_s=2)
            finally:
                loading.kill()

    def stopped(self) -> None:
        """A daemon that holds its weights and does not answer: never taken for one that is not there."""
        with daemon.Served(self.program, "--model", self.model) as served:
            served.process.send_signal(signal.SIGSTOP)
            try:
                self.fails("Timeout", fallback=True, state_timeout_s=2, connect_timeout_s=1)
            finally:
                served.process.send_signal(signal.SIGCONT)

    def failed(self) -> str:
        """A daemon that refused its checkpoint left a tombstone."""
        broken = self.work / "broken"
        shutil.copytree(self.model, broken)
        os.truncate(broken / "model.safetensors", 4096)
        command = [self.program, "serve", "--model", str(broken), "--device", "host"]
        assert subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 3
        return self.from_disk("failed")

    def released(self) -> str:
        with daemon.Served(self.program, "--model", self.model):
            subprocess.run([self.program, "release"], check=True, stdout=subprocess.DEVNULL)
            return self.from_disk("released")

    def unknown_key(self) -> None:
        self.fails("UsageError", no_such_key=1)

    def socket_path(self) -> None:
        with daemon.Served(self.program, "--model", self.model):
            (path,) = map(str, pathlib.Path(os.environ["PRELOAD_SOCKET_DIR"]).glob("*.sock"))
            got = self.engines.run(self.model, extra={"fallback": False, "socket_path": path})
        assert got["tokens"] == self.expected, got["tokens"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", help="only these")
    args = parser.parse_args()
    daemon.use_directories(args.work)
    fallback, table = Fallback(args.program, args.work), Table()
    names = (
        "absent",
        "mismatch",
        "other_layout",
        "comes_later",
        "loading",
        "stopped",
        "failed",
        "released",
        "unknown_key",
    )
    for name in args.cases or (*names, "socket_path"):
        table.check(name, getattr(fallback, name))
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
