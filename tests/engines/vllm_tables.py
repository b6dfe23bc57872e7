#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's tables where a real vLLM keeps them; part of vllm_cpu. FlashInfer itself is made up.

vllm_tables.py PRELOAD WORK
"""

import argparse
import json
import os
import pathlib
import sys
import types
from unittest import mock

import daemon
from vllm_engine import Table

HASH = "0123456789abcdef" * 4
TABLE = json.dumps({"_metadata": {"flashinfer_version": "0.6.18"}, "('op', 'Runner')": ["Runner", 4]})


def table_file() -> pathlib.Path:
    """Where vLLM would write its table under the environment of this moment, by its own function."""
    from vllm.model_executor.warmup import flashinfer_autotune_cache as cache

    with mock.patch.object(cache, "flashinfer_autotune_cache_hash", lambda runner: HASH):
        return cache.resolve_flashinfer_autotune_file(None)


def folders_are_vllms(work: pathlib.Path) -> str:
    from preload import flashinfer_tables

    variables = (
        {},
        {"XDG_CACHE_HOME": str(work / "xdg")},
        {"VLLM_CACHE_ROOT": str(work / "root")},
        {"VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": str(work / "named")},
    )
    names = {name for given in variables for name in given}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    for given in variables:
        with mock.patch.dict(os.environ, {**kept, "HOME": str(work), **given}, clear=True):
            expected, found = table_file().parent.parent, flashinfer_tables.vllm_folder()
            assert found == expected, f"{given}: {found}, vLLM says {expected}"
    return f"{len(variables)} ways to name it"


def successor_gets_them(program: str, work: pathlib.Path) -> str:
    """Written by vLLM's own function, handed on by a daemon, found where vLLM of the next engine looks."""
    from preload import flashinfer_tables
    from vllm.model_executor.warmup.flashinfer_autotune_cache import write_flashinfer_autotune_cache

    name = "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"
    model = daemon.write_model(work / "llama", "llama")
    with daemon.Served(program, "--model", model):
        with mock.patch.dict(os.environ, {name: str(work / "first")}):
            write_flashinfer_autotune_cache(table_file(), TABLE.encode())
            assert flashinfer_tables.put_files() == 1
        with mock.patch.dict(os.environ, {name: str(work / "second")}):
            assert flashinfer_tables.get_files() == 1
            assert table_file().read_text() == TABLE
    return "through a daemon"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("preload")
    parser.add_argument("work", type=pathlib.Path)
    arguments = parser.parse_args()
    daemon.use_directories(arguments.work)
    table = Table()
    import vllm.model_executor.warmup.flashinfer_autotune_cache  # noqa: F401  before FlashInfer is made up

    package, jit = types.ModuleType("flashinfer"), types.ModuleType("flashinfer.jit")
    package.__version__ = "0.6.18"
    jit.env = types.SimpleNamespace(FLASHINFER_WORKSPACE_DIR=pathlib.Path("/cache/flashinfer/0.6.18/90a"))
    with mock.patch.dict(sys.modules, {"flashinfer": package, "flashinfer.jit": jit}):
        table.check("folders", folders_are_vllms, arguments.work)
        table.check("successor", successor_gets_them, arguments.preload, arguments.work)
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
