# SPDX-License-Identifier: Apache-2.0
"""What the GPU scripts of this folder share: child processes, the GPU's memory, and one table."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time


class ChildFailed(Exception):
    pass


def child(script: str, *arguments, timeout: float = 150, environment=None) -> dict:
    """Runs a script whose last line is "RESULT {json}"; raises ChildFailed with the end of its output."""
    process = start(script, *arguments, environment=environment)
    return finish(process, timeout)


def start(script: str, *arguments, environment=None):
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )


def finish(process, timeout: float = 150) -> dict:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    for line in reversed(output.splitlines()):
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    raise ChildFailed(f"exit {process.returncode}: {output[-1500:]}")


def say(result: dict) -> None:
    print("RESULT " + json.dumps(result), flush=True)


def gpu_used_mib() -> int:
    """Of GPU 0, the same three times in a row or the last of fifty; 0 where there is none."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    seen: list = []
    for _ in range(50):
        try:
            seen.append(int(subprocess.run(query, capture_output=True, text=True, check=True).stdout))
        except (OSError, subprocess.CalledProcessError):
            return 0
        if len(seen) >= 3 and len(set(seen[-3:])) == 1:
            break
        time.sleep(0.1)
    return seen[-1]


class Rows:
    """The table; a step that raises is a failed row, and the steps after it are taken all the same."""

    def __init__(self):
        self._rows: list = []
        self._began = time.monotonic()

    def step(self, what: str, call, *arguments):
        began = time.monotonic()
        try:
            passed, figures = call(*arguments)
        except Exception as error:  # noqa: BLE001  the table tells
            passed, figures = False, f"{type(error).__name__}: {error}"
        self._rows.append((what, "pass" if passed else "FAIL", figures))
        print(f"-- {what}: {self._rows[-1][1]} ({figures}) [{time.monotonic() - began:.1f} s]", flush=True)

    def finish(self) -> int:
        failed = sum(result == "FAIL" for _, result, _ in self._rows)
        width = max(len(what) for what, _, _ in self._rows)
        print()
        for what, result, figures in self._rows:
            print(f"{what:<{width}}  {result}  {figures.splitlines()[-1][:200] if figures else ''}")
        print(f"{len(self._rows)} rows, {failed} failed, {time.monotonic() - self._began:.0f} s")
        return 1 if failed else 0


def make_model(shape: str, directory: pathlib.Path, *options) -> str:
    """A checkpoint of tests/gpu/make_model.py, unless it is there."""
    if not (directory / "config.json").exists():
        script = pathlib.Path(__file__).resolve().parents[1] / "gpu/make_model.py"
        subprocess.run([sys.executable, script, shape, directory, *options], check=True)
    return str(directory)
