# SPDX-License-Identifier: Apache-2.0
"""Weights in the engine's memory budget: counted once, given back, and never held twice unawares."""

from __future__ import annotations

import gc
import sys
import weakref

import torch
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.version import __version__ as vllm_version

from .. import _host_memory
from ..daemon import daemons_in
from ..errors import NotEnoughMemory, Unsupported
from .acquire import Acquired

LEAST_VERSION = "0.32"  # the first whose worker asks get_external_weight_memory
_GIB = 1 << 30
RESIDENT = ("READY", "DRAINING", "ORPHANED")  # states in which a daemon's weights take memory
_MEMORY_LEFT = 512 << 20  # for what a load needs besides the weights


def free_bytes(on_cuda: bool) -> int:
    return torch.cuda.mem_get_info()[0] if on_cuda else _host_memory.free_bytes()


def copies(on_cuda: bool, vllm_config) -> int:
    """How many ranks take of the same memory: what one finds different, the others of its node will, too."""
    if on_cuda:
        return 1
    parallel = vllm_config.parallel_config
    replicas = max(1, parallel.data_parallel_size_local or 1)
    return replicas * parallel.local_world_size


def held_bytes(socket_dir, on_cuda: bool, connect_timeout_s: float) -> tuple[int, int]:
    """Bytes of weights that daemons hold in the memory that a load from disk would take, whichever their
    slot or role, and of those that are still to come."""
    resident = coming = 0
    for daemon in daemons_in(socket_dir, connect_timeout_s):
        here = daemon.memory == "host"
        if on_cuda:
            here = daemon.memory == "cuda" and daemon.cuda_device == torch.accelerator.current_device_index()
        if here and daemon.state in RESIDENT:
            resident += daemon.bytes
        elif here and daemon.state == "LOADING":
            coming += daemon.bytes
    return resident, coming


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


class Charges:
    """What engines were charged for weights outside of them, target and draft together.

    By compilation config: a draft's load is given a copy of the engine's config, which shares that one.
    """

    def __init__(self):
        self._by_engine: dict = {}

    def put(self, vllm_config, charged_bytes: int) -> None:
        key = id(vllm_config.compilation_config)

        def forget(_) -> None:
            self._by_engine.pop(key, None)

        self._by_engine[key] = (weakref.ref(vllm_config.compilation_config, forget), charged_bytes)

    def without(self, vllm_config, given_back: int) -> int:
        """What is still charged when so much is not."""
        _, charged = self._by_engine.get(id(vllm_config.compilation_config), (None, given_back))
        left = max(0, charged - given_back)
        self.put(vllm_config, left)
        return left


CHARGES = Charges()


def give_back(charged_bytes: int, vllm_config, cause: Exception) -> None:
    """Takes the charge back after a fallback: the weights are the worker's own now.

    The budget is what the worker's own function makes of its snapshot and of what is still charged.
    """
    if charged_bytes == 0:
        return
    module = sys.modules["vllm.v1.worker.gpu_worker"]
    workers = [
        worker
        for worker in gc.get_objects()
        if issubclass(type(worker), module.Worker) and _is_of(worker, vllm_config)
    ]
    if len(workers) != 1:
        raise Unsupported(
            f"the budget of {charged_bytes / _GIB:.2f} GiB for weights held by the daemon cannot be taken back "
            f"({len(workers)} workers found), which a load from disk ({cause}) asks for: restart with "
            "--load-format auto"
        ) from cause
    (worker,) = workers
    left = CHARGES.without(vllm_config, charged_bytes)
    try:
        worker.requested_memory = module.request_memory(worker.init_snapshot, worker.cache_config, left)
    except ValueError as error:
        raise NotEnoughMemory(
            f"the daemon's weights cannot be used ({cause}), and with {charged_bytes / _GIB:.2f} GiB from disk "
            f"the budget does not fit: {error}"
        ) from cause


def _is_of(worker, vllm_config) -> bool:
    config = getattr(worker, "vllm_config", None)
    return config is not None and config.compilation_config is vllm_config.compilation_config


def weight_bytes(model: torch.nn.Module) -> int:
    """Of all parameters, each counted once."""
    return sum(parameter.nbytes for parameter in model.parameters())


def check_second_copy(needed: int, resident: int, free: int, place: str, cause: Exception, coming: int = 0) -> None:
    """Raises NotEnoughMemory unless the weights fit beside those that daemons hold and those they load."""
    if resident + coming == 0 or free >= needed + coming + _MEMORY_LEFT:
        return
    loading = f", with {coming / _GIB:.2f} GiB to come of one that loads" if coming else ""
    raise NotEnoughMemory(
        f"the daemon's weights cannot be used ({cause}), and no second copy is loaded from disk: it needs "
        f"{needed / _GIB:.2f} GiB on {place}, of which {free / _GIB:.2f} GiB are free beside the "
        f"{resident / _GIB:.2f} GiB that daemons hold there{loading}. Serve what the engine expects, or end the "
        "daemon (preload stop)"
    )
