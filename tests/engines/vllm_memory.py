#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights in the memory budget, by vLLM's own functions over made-up snapshots; part of vllm_cpu.

vllm_memory.py PRELOAD WORK
"""

import argparse
import gc
import json
import math
import pathlib
import sys
from types import SimpleNamespace
from unittest import mock

import daemon
import torch
from vllm_engine import Table
from vllm_held import start_groups

import preload.vllm

GIB = 1 << 30
TOTAL, WEIGHTS, CONTEXT, ACTIVATIONS = 80 * GIB, 20 * GIB, 1 * GIB, 3 * GIB
UTILIZATION = 0.9


def snapshot(free: int, peak: int = 0):
    from vllm.utils.mem_utils import MemorySnapshot

    made = MemorySnapshot(device=torch.device("cpu"), auto_measure=False)
    made.total_memory, made.free_memory, made.torch_peak = TOTAL, free, peak
    made.cuda_memory = TOTAL - free
    return made


def kv_bytes(free_at_start: int, free_after: int, external: int) -> int:
    """What the worker leaves for the KV cache: request_memory, then memory_profiling, as it has them."""
    from vllm.utils import mem_utils
    from vllm.v1.worker.utils import request_memory

    start = snapshot(free_at_start)
    requested = request_memory(start, SimpleNamespace(gpu_memory_utilization=UTILIZATION), external)
    after = snapshot(free_after, peak=ACTIVATIONS)
    measured = iter((start, after))

    def measure(self):
        self.__dict__.update({k: v for k, v in vars(next(measured)).items() if k != "device_"})

    with (
        mock.patch.object(mem_utils.MemorySnapshot, "measure", measure),
        mock.patch.object(mem_utils.torch.accelerator, "empty_cache", lambda: None),
        mock.patch.object(mem_utils.torch.accelerator, "reset_peak_memory_stats", lambda device: None),
        mem_utils.memory_profiling(start, weights_memory=0) as result,
    ):
        pass
    return requested - result.non_kv_cache_memory


def budgets() -> str:
    """The KV cache gets the same bytes from disk and from weights that the daemon holds, or held until a
    copy was taken: what is free is the same. Not charged, they would be asked for a second time, which vLLM refuses."""
    disk = kv_bytes(TOTAL, TOTAL - WEIGHTS - CONTEXT, 0)
    shared = kv_bytes(TOTAL - WEIGHTS, TOTAL - WEIGHTS - CONTEXT, WEIGHTS)
    twice = kv_bytes(TOTAL - WEIGHTS, TOTAL - 2 * WEIGHTS - CONTEXT, WEIGHTS)  # others hold the daemon's
    want = math.ceil(TOTAL * UTILIZATION) - WEIGHTS - CONTEXT - ACTIVATIONS
    assert disk == shared == want, (disk, shared, want)
    try:
        kv_bytes(TOTAL - WEIGHTS, TOTAL - WEIGHTS - CONTEXT, 0)
        raise AssertionError("weights that are not charged were granted again")
    except ValueError:
        pass
    assert twice == want - WEIGHTS, twice
    return f"{want / GIB:.2f} GiB each"


def engine_config(model: str, **given):
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=model,
        load_format="preload",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        **given,
    ).create_engine_config()


def asked(config) -> int:
    """What the GPU worker asks before it measures."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    with set_current_vllm_config(config):
        return get_model_loader(config.load_config).get_external_weight_memory(config)


def loaded(config):
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model

    with set_current_vllm_config(config):
        return get_model(vllm_config=config)


def served_bytes(program: str, work: pathlib.Path) -> str:
    """What the worker is told: the slabs' bytes of target and draft, as `preload status` has them."""
    target, draft = str(work / "llama"), daemon.write_eagle(work / "draft")
    speculative = {"method": "eagle", "model": draft, "num_speculative_tokens": 2}
    plain, both = engine_config(target), engine_config(target, speculative_config=speculative)
    copying = engine_config(target, model_loader_extra_config={"mode": "copy"})
    assert asked(plain) == 0  # nothing is served: a load from disk, charged as such
    command = ["--model", target, "--speculative-config", json.dumps(speculative)]
    with daemon.Served(program, *command) as served:
        sizes = {role: served.status(role)["bytes"] for role in ("target", "draft")}
        assert asked(plain) == sizes["target"], (asked(plain), sizes)
        assert asked(copying) == sizes["target"]
        assert asked(both) == sum(sizes.values()), (asked(both), sizes)
        return str(sizes)


def one_attachment(program: str, work: pathlib.Path) -> None:
    """The load takes what the accounting attached, the model holds it, and lets go with its weights."""
    config = engine_config(str(work / "llama"), model_loader_extra_config={"fallback": False})
    with daemon.Served(program, "--model", str(work / "llama")) as served:
        assert asked(config) > 0
        assert len(served.status()["leases"]) == 1
        model = loaded(config)
        assert len(served.status()["leases"]) == 1
        config.compilation_config.static_forward_context.clear()
        del model
        gc.collect()
        served.wait_until(lambda status: not status["leases"])


def no_room(program: str, work: pathlib.Path) -> None:
    """Another model is resident: without room beside it an error, with room a load from disk."""
    other = daemon.write_model(work / "other", "llama", seed=2)
    for slot in ("", "b"):  # under another slot they take as much memory
        no_room_beside(program, work, other, *(["--slot", slot] if slot else []))


def no_room_beside(program: str, work: pathlib.Path, other: str, *options: str) -> None:
    from preload import NotEnoughMemory
    from preload.vllm import memory

    config = engine_config(str(work / "llama"))
    with daemon.Served(program, "--model", other, *options):
        with mock.patch.object(memory, "free_bytes", lambda on_cuda: 1 << 20):
            try:
                asked(config)
                raise AssertionError("a second copy was begun")
            except NotEnoughMemory as error:
                assert "no second copy is loaded from disk" in str(error), error
        assert asked(config) == 0
        model = loaded(config)
    assert not any(parameter.is_meta for parameter in model.parameters())


def budget_of(config, free: int):
    """A worker's budget, charged with what is left of the daemon's weights."""
    from vllm.v1.worker.gpu_worker import Worker

    worker = object.__new__(Worker)
    worker.vllm_config = config
    worker.cache_config = SimpleNamespace(gpu_memory_utilization=UTILIZATION)
    worker.init_snapshot = snapshot(free)
    return worker


class CompilationConfig:
    """Of which there is one per engine."""


def configured():
    return SimpleNamespace(compilation_config=CompilationConfig())


def taken_back() -> None:
    """After a fallback the budget is what request_memory makes of what is still charged."""
    from preload import Mismatch, NotEnoughMemory, Unsupported
    from preload.vllm import memory

    cause, all_of_it, draft = Mismatch("other weights"), math.ceil(TOTAL * UTILIZATION), 2 * GIB
    config = configured()
    worker = budget_of(config, TOTAL - CONTEXT)
    memory.CHARGES.put(config, WEIGHTS + draft)
    worker.requested_memory = all_of_it - WEIGHTS - draft
    memory.give_back(0, config, cause)
    assert worker.requested_memory == all_of_it - WEIGHTS - draft
    memory.give_back(WEIGHTS, config, cause)
    assert worker.requested_memory == all_of_it - draft, worker.requested_memory  # it is attached still
    # vLLM's proposers load drafts by a config of their own, which shares this much.
    replaced = SimpleNamespace(compilation_config=config.compilation_config)
    memory.give_back(draft, replaced, cause)
    assert worker.requested_memory == all_of_it
    worker.init_snapshot = snapshot(TOTAL - WEIGHTS)  # the daemon's are still there
    memory.CHARGES.put(config, WEIGHTS)
    try:
        memory.give_back(WEIGHTS, config, cause)
        raise AssertionError("more was granted than is free")
    except NotEnoughMemory as error:
        assert "other weights" in str(error) and "20.00 GiB" in str(error), error
    try:
        memory.give_back(WEIGHTS, configured(), cause)
        raise AssertionError("another engine's budget was changed")
    except Unsupported as error:
        assert "other weights" in str(error), error


def drafts_config(work: pathlib.Path) -> None:
    """The config that a proposer makes for its draft is another, and shares its compilation config."""
    from vllm.config import replace

    config = engine_config(str(work / "llama"))
    replaced = replace(config, quant_config=None)
    assert replaced is not config
    assert replaced.compilation_config is config.compilation_config


def second_copy() -> None:
    from preload import Mismatch, NotEnoughMemory
    from preload.vllm.memory import check_second_copy

    cause = Mismatch("other weights")
    check_second_copy(WEIGHTS, 0, 0, "cuda:0", cause)  # nothing is resident: vLLM's own business
    check_second_copy(WEIGHTS, WEIGHTS, 2 * WEIGHTS, "cuda:0", cause)
    for free in (0, WEIGHTS - 1, WEIGHTS):
        try:
            check_second_copy(WEIGHTS, WEIGHTS, free, "cuda:0", cause)
        except NotEnoughMemory as error:
            assert "other weights" in str(error) and "20.00 GiB on cuda:0" in str(error), error
        else:
            raise AssertionError(f"a second copy was begun with {free} bytes free")
    check_second_copy(WEIGHTS, 0, 3 * WEIGHTS, "cuda:0", cause, coming=WEIGHTS)
    try:
        check_second_copy(WEIGHTS, 0, 2 * WEIGHTS, "cuda:0", cause, coming=WEIGHTS)
        raise AssertionError("a second copy was begun where another model is still to come")
    except NotEnoughMemory as error:
        assert "20.00 GiB to come" in str(error), error


def ranks_of_a_node() -> None:
    """Ranks on host memory load their copies side by side; a GPU has one."""
    from preload.vllm.memory import copies
    from vllm.config import ParallelConfig

    for given, expected in (
        ({}, 1),
        ({"tensor_parallel_size": 2}, 2),
        ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, 4),
        ({"tensor_parallel_size": 4, "nnodes": 2}, 2),
        ({"tensor_parallel_size": 2, "data_parallel_size": 3, "data_parallel_size_local": 3}, 6),
        ({"data_parallel_size": 4, "data_parallel_size_local": 2}, 2),
    ):
        config = SimpleNamespace(parallel_config=ParallelConfig(distributed_executor_backend="mp", **given))
        assert copies(False, config) == expected, (given, copies(False, config))
        assert copies(True, config) == 1


def without_the_hook() -> None:
    """A worker that never asked would count the weights twice: refused, with the value to set."""
    from preload import Unsupported
    from preload.vllm import memory
    from preload.vllm.acquire import Acquired

    def acquired(kind):
        shard = SimpleNamespace(info=SimpleNamespace(memory=kind), memory_bytes=WEIGHTS)
        return Acquired("target", shard=shard)

    config = SimpleNamespace(cache_config=SimpleNamespace(gpu_memory_utilization=UTILIZATION))
    with mock.patch.object(torch.cuda, "mem_get_info", lambda: (TOTAL - WEIGHTS, TOTAL)):
        memory.check_accounted(acquired("cuda"), True, config)
        memory.check_accounted(acquired("host"), False, config)
        try:
            memory.check_accounted(acquired("cuda"), False, config)
        except Unsupported as error:
            assert "--gpu-memory-utilization 0.650" in str(error) and "0.32" in str(error), error
            return
    raise AssertionError("it was not refused")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    args = parser.parse_args()
    daemon.use_directories(args.work)
    table = Table()
    table.check("budgets", budgets)
    table.check("taken back", taken_back)
    table.check("second copy", second_copy)
    table.check("ranks of a node", ranks_of_a_node)
    table.check("without the hook", without_the_hook)
    preload.vllm.register()
    start_groups(engine_config(daemon.write_model(args.work / "llama", "llama")))
    table.check("a draft's config", drafts_config, args.work)
    table.check("one attachment", one_attachment, args.program, args.work)
    table.check("no room", no_room, args.program, args.work)
    table.check("served bytes", served_bytes, args.program, args.work)
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
