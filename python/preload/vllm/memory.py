# SPDX-License-Identifier: Apache-2.0
"""Weights in the engine's memory budget: counted once, given back, and never held twice unawares."""

from __future__ import annotations

import gc
import sys

import torch
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.version import __version__ as vllm_version

from ..errors import NotEnoughMemory, Unsupported
from .acquire import Acquired

LEAST_VERSION = "0.32"  # the first whose worker asks get_external_weight_memory
_GIB = 1 << 30
_MEMORY_LEFT = 512 << 20  # for what a load needs besides the weights


def free_bytes(on_cuda: bool) -> int:
    if on_cuda:
        return torch.cuda.mem_get_info()[0]
    with open("/proc/meminfo") as meminfo:
        fields = dict(line.split(":") for line in meminfo)
    return int(fields["MemAvailable"].split()[0]) * 1024


def check_accounted(acquired: Acquired, was_charged: bool, vllm_config) -> None:
    """Raises Unsupported where the GPU worker never asked for what lies outside of it."""
    if acquired.shard is None or acquired.shard.info.memory != "cuda" or was_charged:
        return
    total = torch.cuda.mem_get_info()[1]
    utilization = vllm_config.cache_config.gpu_memory_utilization
    left = max(0.0, utilization - acquired.shard.memory_bytes / total)
    hook = hasattr(BaseModelLoader, "get_external_weight_memory")
    raise Unsupported(
        f"vLLM {vllm_version} {'did not ask' if hook else 'has no way to ask'} for weights outside of its own "
        f"memory (get_external_weight_memory, {LEAST_VERSION} and newer), so --gpu-memory-utilization "
        f"{utilization} would count {acquired.shard.memory_bytes / _GIB:.2f} GiB of weights twice: use "
        f'{{"mode": "copy"}} with --gpu-memory-utilization {left:.3f}, or --load-format auto'
    )


def give_back(charged_bytes: int, vllm_config) -> None:
    """Takes the charge back after a fallback: the weights are the worker's own now.

    The budget is what the worker's own function makes of its snapshot without external weights.
    """
    if charged_bytes == 0:
        return
    module = sys.modules["vllm.v1.worker.gpu_worker"]
    workers = [
        worker
        for worker in gc.get_objects()
        if issubclass(type(worker), module.Worker) and getattr(worker, "vllm_config", None) is vllm_config
    ]
    if len(workers) != 1:
        raise Unsupported(
            f"the budget of {charged_bytes / _GIB:.2f} GiB for weights held by the daemon cannot be taken back "
            f"({len(workers)} workers found): restart with --load-format auto"
        )
    (worker,) = workers
    worker.requested_memory = module.request_memory(worker.init_snapshot, worker.cache_config)


def weight_bytes(model: torch.nn.Module) -> int:
    """Of all parameters, each counted once."""
    return sum(parameter.nbytes for parameter in model.parameters())


def check_second_copy(needed: int, resident: int, free: int, place: str, cause: Exception) -> None:
    """Raises NotEnoughMemory unless the weights fit beside those that the daemon holds."""
    if resident == 0 or free >= needed + _MEMORY_LEFT:
        return
    raise NotEnoughMemory(
        f"the daemon's weights cannot be used ({cause}), and no second copy is loaded from disk: it needs "
        f"{needed / _GIB:.2f} GiB on {place}, of which {free / _GIB:.2f} GiB are free beside the "
        f"{resident / _GIB:.2f} GiB that the daemon holds. Serve what the engine expects, or end the daemon "
        "(preload stop)"
    )
