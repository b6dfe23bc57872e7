# SPDX-License-Identifier: Apache-2.0
"""A vLLM model built around served tensors."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager, nullcontext

import torch
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group
from vllm.model_executor.model_loader import utils as loading
from vllm.utils.torch_utils import set_default_torch_dtype

from .._assign import assign
from .._meta import WeightsOnMeta, left_on_meta
from ..errors import Unsupported
from . import engine, post_process

_OWNERSHIP = {"has_own_embed_tokens": "embed_tokens.weight", "has_own_lm_head": "lm_head.weight"}


def forget_layers(vllm_config, model: torch.nn.Module) -> None:
    """Takes a model's layers out of the config that they registered themselves in, by name."""
    mine = set(map(id, model.modules()))
    compilation = vllm_config.compilation_config
    layers = compilation.static_forward_context
    names = {name for name, layer in layers.items() if id(layer) in mine}
    for name in names:
        del layers[name]
    experts = compilation.static_all_moe_layers
    experts[:] = [name for name in experts if name not in names]


def device_of(vllm_config, load_config) -> torch.device:
    """The engine's device, a GPU with its index: torch finds a missing one out by an allocation each time."""
    device = torch.device(load_config.device or vllm_config.device_config.device)
    if device.type == "cpu" or device.index is not None:
        return device
    return torch.device(device.type, torch.accelerator.current_device_index())


def without_weights(vllm_config, model_config, load_config, prefix: str = "") -> torch.nn.Module:
    """The model, whose weights have no memory and whose buffers are real."""
    with WeightsOnMeta(device_of(vllm_config, load_config)):
        return loading.initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)


@contextmanager
def _no_notes_for_reloading():
    """What vLLM notes of each layer for a later reload takes a third of the construction.

    Weights that are shared are never reloaded: see refusals.
    """
    name = "record_metadata_for_reloading"
    noting = getattr(loading, name, None)
    if noting is None:
        yield
        return
    setattr(loading, name, lambda model: None)
    try:
        yield
    finally:
        setattr(loading, name, noting)


@contextmanager
def _no_collection():
    """No pass of the garbage collector, over everything that an engine has imported, on the way."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Build:
    """Builds one model; each step is timed."""

    def __init__(self, vllm_config, model_config, load_config, prefix: str, shard):
        self._vllm, self._model_config, self._load_config = vllm_config, model_config, load_config
        self._prefix, self._shard = prefix, shard
        self._device = device_of(vllm_config, load_config)
        self._timing: list = []

    def timing_text(self) -> str:
        return ", ".join(f"{step} {ms:.1f}" for step, ms in self._timing)

    def run(self) -> torch.nn.Module:
        with set_default_torch_dtype(self._model_config.dtype), _no_collection():
            model = self._timed("build", self._initialize)
            try:
                self._timed("assign", self._assign, model)
                self._timed("post-process", self._post_process, model)
            except BaseException:
                forget_layers(self._vllm, model)
                raise
        return model

    def _timed(self, step: str, call, *arguments):
        began = time.perf_counter()
        result = call(*arguments)
        self._timing.append((step, (time.perf_counter() - began) * 1000))
        return result

    def _initialize(self) -> torch.nn.Module:
        with nullcontext() if self._shard.info.is_copy else _no_notes_for_reloading():
            return without_weights(self._vllm, self._model_config, self._load_config, self._prefix)

    def _assign(self, model: torch.nn.Module) -> None:
        if not self._shard.info.is_copy:
            post_process.check_methods(model)
        metadata = self._shard.info.metadata
        engine.check_experts(model, metadata)
        assign(model, self._shard.torch(), self._borrow(model, metadata["attributes"]))

    def _borrow(self, model: torch.nn.Module, attributes: dict) -> frozenset:
        """Names of a draft's parameters that are the target's: vLLM shares them after loading.

        Until it does they are zeros.
        """
        borrowed = set()
        for flag, suffix in _OWNERSHIP.items():
            own = attributes.get(flag)
            if own is None:
                continue
            if hasattr(type(model), flag) or hasattr(model, flag):
                setattr(model, flag, own)
            if own:
                continue
            if suffix.startswith("embed_tokens") and get_pp_group().world_size > 1:
                raise Unsupported(
                    "the draft has no embeddings of its own and the target's are on another pipeline stage: "
                    "use pipeline_parallel_size 1"
                )
            for name, parameter in model.named_parameters(remove_duplicate=False):
                if name.endswith(suffix) and parameter.is_meta:
                    borrowed.add(name)
                    new = torch.Tensor._make_subclass(type(parameter), self._zeros(parameter), False)
                    new.__dict__.update(parameter.__dict__)
                    torch.utils.swap_tensors(parameter, new)
        return frozenset(borrowed)

    def _zeros(self, like: torch.Tensor) -> torch.Tensor:
        if self._device.type == "cpu":  # packed after loading, which wants them contiguous
            return torch.zeros(like.shape, dtype=like.dtype, device=self._device)
        return torch.zeros((), dtype=like.dtype, device=self._device).expand(like.shape)  # no memory

    def _post_process(self, model: torch.nn.Module) -> None:
        with post_process.guard_against_writes(self._shared_ranges()):
            loading.process_weights_after_loading(model, self._model_config, self._device)
        if left := left_on_meta(model, skip=(VllmConfig,)):
            raise Unsupported(
                f"{len(left)} tensors of the model have no memory: {', '.join(left[:20])}; this model cannot be "
                "built around weights that are there: use --load-format auto"
            )

    def _shared_ranges(self) -> list:
        return [] if self._shard.info.is_copy else self._shard.shared_ranges()
