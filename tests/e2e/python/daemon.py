# SPDX-License-Identifier: Apache-2.0
"""The test daemon as a context manager, and where the build put things."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("PRELOAD_BUILD_DIR", SOURCE / "build" / "cpu"))
sys.path.insert(0, str(SOURCE / "python"))


class Daemon:
    """preload_test_daemon in ``directory``, ready (or loading) when entered."""

    def __init__(self, directory, *arguments: str, until: str = "READY"):
        program = Path(os.environ["PRELOAD_TEST_DAEMON"])
        self.process = subprocess.Popen(
            [program, str(directory), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.expect(until)

    def expect(self, word: str) -> None:
        line = self.process.stdout.readline().strip()
        if line != word:
            self.process.kill()
            raise RuntimeError(f"the test daemon said {line!r} instead of {word!r}")

    def go_on(self) -> None:
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def suspend(self) -> None:
        """Returns when it runs no more."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *exception) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
