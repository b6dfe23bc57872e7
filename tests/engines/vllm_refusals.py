#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What would write to shared weights is refused by name, before it does; part of tests/engines/vllm_cpu.

vllm_refusals.py PRELOAD WORK
"""

import argparse
import pathlib
import sys

import daemon
from vllm_engine import Engines, Table

CALLS = ("reload_weights", "reset_weights", "sleep", "update_weights", "start_weight_update")
ARGUMENTS = {"update_weights": [{}]}


def calls(program: str, work: pathlib.Path) -> None:
    """Each call of the worker is refused, and the engine goes on with the weights it had."""
    model = daemon.write_model(work / "llama", "llama")
    with daemon.Served(program, "--model", model):
        asked = [[name, *ARGUMENTS.get(name, [])] for name in CALLS]
        got = Engines(work).run(model, extra={"fallback": False}, ask=asked)
    for name in CALLS:
        assert got["asked"][name].startswith("Unsupported: " + name + "() writes to weights"), got["asked"][
            name
        ]
    assert got["tokens_after"] == got["tokens"]


def configurations() -> None:
    """Features that are configured are refused before anything is attached."""
    from types import SimpleNamespace

    import preload
    from preload.vllm import refusals

    def config(**given):
        offload = SimpleNamespace(
            uva=SimpleNamespace(cpu_offload_gb=given.get("offload", 0)),
            prefetch=SimpleNamespace(offload_group_size=0),
        )
        return SimpleNamespace(
            model_config=SimpleNamespace(enable_sleep_mode=given.get("sleep", False)),
            parallel_config=SimpleNamespace(enable_eplb=given.get("eplb", False)),
            weight_transfer_config=given.get("transfer"),
            offload_config=offload,
        )

    refusals.check_config(config(), zero_copy=True)
    refusals.check_config(config(eplb=True, offload=1), zero_copy=False)
    for given, zero_copy, name in (
        ({"sleep": True}, True, "--enable-sleep-mode"),
        ({"sleep": True}, False, "--enable-sleep-mode"),
        ({"eplb": True}, True, "--enable-eplb"),
        ({"transfer": object()}, True, "--weight-transfer-config"),
        ({"offload": 1}, True, "--cpu-offload-gb"),
    ):
        try:
            refusals.check_config(config(**given), zero_copy)
        except preload.Unsupported as refusal:
            assert name in str(refusal), refusal
        else:
            raise AssertionError(f"{given} was not refused")


def names_are_vllms() -> None:
    """What is refused exists under these names in this vLLM: a rename must not go unnoticed."""
    from preload.vllm import refusals
    from vllm.config import ModelConfig, ParallelConfig, VllmConfig
    from vllm.config.offload import OffloadConfig, PrefetchOffloadConfig, UVAOffloadConfig
    from vllm.v1.worker.gpu_worker import Worker

    missing = [name for name in refusals._WRITING_CALLS if not hasattr(Worker, name)]
    assert not missing, missing
    for owner, name in (
        (ModelConfig, "enable_sleep_mode"),
        (ParallelConfig, "enable_eplb"),
        (VllmConfig, "weight_transfer_config"),
        (VllmConfig, "offload_config"),
        (OffloadConfig, "uva"),
        (UVAOffloadConfig, "cpu_offload_gb"),
        (OffloadConfig, "prefetch"),
        (PrefetchOffloadConfig, "offload_group_size"),
    ):
        assert name in owner.__dataclass_fields__, f"{owner.__name__}.{name}"


def guard() -> None:
    """A write to shared memory is refused before it happens; one beside it is not."""
    import torch

    import preload
    from preload.vllm.post_process import guard_against_writes

    shared, own = torch.arange(8.0), torch.zeros(8)
    begin = shared.data_ptr()
    with guard_against_writes([(begin, begin + shared.nbytes)]):
        own.copy_(shared)
        shared.copy_(shared)  # onto itself: nothing happens
        own[2:4].fill_(7)
        for write in (
            lambda: shared.zero_(),
            lambda: shared[3:5].copy_(own[3:5]),
            lambda: shared.view(2, 4).t().mul_(2),
            lambda: torch.add(own, 1, out=shared),
            lambda: torch._foreach_add_([own, shared], 1),
            lambda: torch._foreach_zero_([own[:2], shared[4:]]),
            lambda: torch._foreach_copy_([own, shared], [shared, own]),
        ):
            try:
                write()
            except preload.Unsupported:
                continue
            raise AssertionError("a write went through")
    assert shared.tolist() == list(range(8)), shared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    args = parser.parse_args()
    daemon.use_directories(args.work)
    table = Table()
    table.check("guard", guard)
    table.check("configurations", configurations)
    table.check("names", names_are_vllms)
    table.check("calls", calls, args.program, args.work)
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
