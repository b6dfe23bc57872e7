# SPDX-License-Identifier: Apache-2.0
"""Runs engines of vLLM in processes of their own and hands back what they said."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

# What the load format and vLLM say about loading, in any of the engine's processes.
_LOGGED = re.compile(r"\] (preload: .*|Model loading took .*)")
HERE = pathlib.Path(__file__).resolve().parent


class EngineFailed(Exception):
    """An engine that did not come up; the text is the end of its log."""


def plugin_path(work: pathlib.Path) -> str:
    """A folder that makes the source tree's plugin known to vLLM, as an installed wheel does."""
    info = work / "plugin" / "preload_client-0.1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: preload-client\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[vllm.general_plugins]\npreload = preload.vllm:register\n")
    return str(info.parent)


class Engines:
    def __init__(self, work: pathlib.Path):
        path = [str(HERE.parents[1] / "python"), plugin_path(work), os.environ.get("PYTHONPATH", "")]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "VLLM_LOGGING_LEVEL": "INFO",  # the lines that are looked at
        }

    def start(self, model: str, load_format: str = "preload", **given):
        """A started engine process, for `finish`; `given`: extra, options, ask, tokens, load_only,
        environment."""
        environment = {**self._environment, **given.pop("environment", {})}
        command = [sys.executable, str(HERE / "vllm_generate.py"), model, load_format]
        command += ["--load-only"] * given.pop("load_only", False)
        for name, value in given.items():
            command += [f"--{name}", json.dumps(value)]
        return subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    @staticmethod
    def finish(process, timeout: float = 400) -> dict:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        for line in output.splitlines():
            if line.startswith("RESULT "):
                return {**json.loads(line.removeprefix("RESULT ")), "lines": _LOGGED.findall(output)}
        raise EngineFailed(output[-3000:])

    def run(self, model: str, load_format: str = "preload", **given) -> dict:
        return self.finish(self.start(model, load_format, **given))


class Table:
    """Cases by name; each prints a line, and a failed one its reason."""

    def __init__(self):
        self.failed = 0

    def check(self, name: str, case, *arguments) -> None:
        try:
            text = case(*arguments) or "ok"
        except (AssertionError, EngineFailed, RuntimeError, subprocess.SubprocessError) as error:
            self.failed += 1
            text = f"FAILED: {type(error).__name__}: {error}"
        print(f"{name}: {text}", flush=True)
