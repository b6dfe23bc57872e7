#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks on two GPUs of one machine.

    two.py BUILD PART... --model DIR [--experts DIR] [--setting gpus|shared|host] [--runs 3]

Parts:
  layouts  tp, pp, dp and ep of 2: every tensor right, found by UUID, memory above the weights, contexts
  rates    dp=2 and tp=2 beside what the machine gives, bytes over NVLink, the path through NCCL
  deaths   one rank killed while it loads, after READY, and while NCCL initialises
  engine   a real vLLM at tp=2; needs vLLM in this Python

--model is of Llama's shape, --experts (for layouts) a model with experts; their files should be in the page
cache. Setting: `gpus` (default) wants two GPUs, `shared` lets both ranks share one and skips what needs the
second, `host` rehearses on host memory. Needs mpirun and, for rates, torch. Prints a line a row, fields
between tabs: row, what, pass|fail|skip, figures; then the line "end". Exits 1 when one failed."""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
PARTS = ("layouts", "rates", "deaths", "engine")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--experts", type=pathlib.Path)
    parser.add_argument("--setting", choices=("gpus", "shared", "host"), default="gpus")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    build, mpirun = args.build.resolve(), shutil.which("mpirun")
    if mpirun is None:
        parser.error("mpirun is not in the path: install Open MPI")
    if "layouts" in args.parts and args.experts is None:
        parser.error("layouts needs --experts")
    os.environ["PRELOAD_TEST_BIN"] = str(build / "src/preload")
    os.environ["PRELOAD_CLIENT_LIBRARY"] = str(build / "src/libpreload_client.so")
    os.environ["PRELOAD_TEST_READ_FAULTS"] = str(build / "tests/support/preload_read_faults.so")
    root = " --allow-run-as-root" if os.geteuid() == 0 else ""
    os.environ["PRELOAD_TEST_MPIRUN"] = f"{mpirun} --oversubscribe{root}"
    import two_deaths
    import two_engine
    import two_layouts
    import two_rates
    from two_ranks import Setting, run_rows

    modules = {"layouts": two_layouts, "rates": two_rates, "deaths": two_deaths, "engine": two_engine}
    experts = (args.experts or args.model).resolve()
    setting = Setting(args.setting, args.model.resolve(), experts, args.runs)
    ok = all([run_rows(modules[part].ROWS, setting) for part in args.parts])
    print("end", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        sys.exit(main())
