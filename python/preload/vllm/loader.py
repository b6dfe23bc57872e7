# SPDX-License-Identifier: Apache-2.0
"""The model loader that vLLM calls for ``--load-format preload``."""

from __future__ import annotations

import dataclasses
import gc
import time

import torch
from vllm.config.load import LoadConfig
from vllm.distributed import get_pp_group
from vllm.logger import init_logger
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import get_draft_load_config
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype

from .._kernels import KernelLoader
from ..errors import Error, Unsupported
from . import build, engine, memory, refusals
from .acquire import KEPT, RECOVERABLE, Acquired, Acquirer
from .options import parse

logger = init_logger("vllm.preload")


class PreloadModelLoader(BaseModelLoader):
    """Builds the model around weights that a preload daemon holds; see docs/engines.md."""

    def __init__(self, load_config: LoadConfig):
        super().__init__(load_config)
        self.options = parse(load_config.model_loader_extra_config)

    # What the worker asks before it measures its memory.

    def get_external_weight_memory(self, vllm_config) -> int:
        """Bytes of the daemon's weights, the draft's too; attaches them, so that they stay.

        In copy mode as well: the copy is the worker's own, and the daemon's goes when it is taken, so
        that what the worker sees used grows by nothing.
        """
        refusals.check_config(vllm_config, self.options.zero_copy)
        total = self._charge(vllm_config, vllm_config.model_config)
        if engine.has_served_draft(vllm_config) and get_pp_group().is_last_rank:  # where vLLM loads it
            draft = get_draft_load_config(vllm_config)
            if draft.load_format == self.load_config.load_format:
                total += PreloadModelLoader(draft)._charge(
                    vllm_config, vllm_config.speculative_config.draft_model_config
                )
        memory.CHARGES.put(vllm_config, total)
        return total

    def _charge(self, vllm_config, model_config) -> int:
        engine.check_platform()
        acquired = self._acquire(vllm_config, model_config)
        if acquired.shard is not None:
            acquired.charged_bytes = acquired.shard.memory_bytes
            if acquired.shard.info.memory == "cuda":
                device = build.device_of(vllm_config, self.load_config)
                acquired.kernels = KernelLoader.started(device, model_config.dtype)
        KEPT.put(model_config, acquired)
        return acquired.charged_bytes

    def _acquire(self, vllm_config, model_config) -> Acquired:
        acquirer = Acquirer(self.options, vllm_config, model_config, self.load_config)
        acquired = acquirer.acquire()
        if acquired.error is not None:
            self._check_may_fall_back(acquirer, vllm_config, model_config, acquired.error)
        return acquired

    def _check_may_fall_back(self, acquirer: Acquirer, vllm_config, model_config, cause: Error) -> None:
        """Raises ``cause``, or NotEnoughMemory, unless a load from disk may stand in for it."""
        if not self.options.fallback:
            raise cause
        found = acquirer.look()
        if found.state == "LOADING":
            raise cause  # it is coming, and will take the memory
        on_cuda = current_platform.is_cuda()
        resident, coming = memory.held_bytes(acquirer.directory(), on_cuda, self.options.connect_timeout_s)
        if resident or coming:
            ranks = memory.copies(on_cuda, vllm_config)
            try:
                needed = self._bytes_of(vllm_config, model_config)
            except Unsupported:  # its constructor reads weights: as large as what is held, for all that is known
                needed = resident + coming
            memory.check_second_copy(
                ranks * needed,
                resident,
                memory.free_bytes(on_cuda),
                found.device or acquirer.where()["device"],
                cause,
                coming,
            )

    # What the model runner asks.

    def load_model(self, vllm_config, model_config, prefix: str = "") -> torch.nn.Module:
        engine.check_platform()
        is_draft = engine.is_draft(vllm_config, model_config)
        if is_draft and not engine.has_served_draft(vllm_config):
            logger.info(
                "preload holds no drafts of method %s: this one is loaded from disk", _method(vllm_config)
            )
            return self._load_from_disk(vllm_config, model_config, prefix)
        refusals.check_config(vllm_config, self.options.zero_copy)
        began = time.perf_counter()
        kept = KEPT.take(model_config)
        acquired = kept or self._acquire(vllm_config, model_config)
        if acquired.kernels is not None:
            acquired.kernels.wait()
        if self.options.zero_copy:
            memory.check_accounted(acquired, kept is not None, vllm_config)
        cause = acquired.error
        if cause is None:
            try:
                return self._build(vllm_config, model_config, prefix, acquired, began)
            except RECOVERABLE as error:
                cause = error.with_traceback(None)  # its frames hold what is to be freed
        return self._fall_back(vllm_config, model_config, prefix, acquired, cause)

    def _build(self, vllm_config, model_config, prefix, acquired: Acquired, began: float):
        shard = acquired.shard
        if not self.options.zero_copy:
            shard = self._copy(vllm_config, model_config, shard)
        steps = build.Build(vllm_config, model_config, self.load_config, prefix, shard)
        model = steps.run()
        if self.options.zero_copy:
            refusals.protect(model)
        acquired.shard = None
        logger.info(
            "preload: %d tensors, %.2f GiB of %s (%s, %s): load %.1f ms; context %.1f, attach %.1f, %s",
            len(shard), shard.memory_bytes / (1 << 30), acquired.role, self.options.mode, shard.info.device,
            (time.perf_counter() - began) * 1000, acquired.context_ms, shard.attach_ms, steps.timing_text(),
        )  # fmt: skip
        return model.eval()

    def _copy(self, vllm_config, model_config, mapped):
        """A writable copy of what is mapped; with the mapping's lease the daemon's goes."""
        acquirer = Acquirer(self.options, vllm_config, model_config, self.load_config)
        copy = acquirer.shard(copy=True)
        mapped.detach()
        return copy

    def _fall_back(self, vllm_config, model_config, prefix, acquired: Acquired, cause: Error):
        acquirer = Acquirer(self.options, vllm_config, model_config, self.load_config)
        if acquired.shard is not None:
            acquired.shard.detach()
        acquired.shard = None
        gc.collect()
        torch.accelerator.empty_cache()
        self._check_may_fall_back(acquirer, vllm_config, model_config, cause)
        logger.warning("preload: loading %s from disk, since %s: %s", acquired.role, cause.status, cause)
        memory.give_back(acquired.charged_bytes, vllm_config, cause)
        return self._load_from_disk(vllm_config, model_config, prefix)

    def _bytes_of(self, vllm_config, model_config) -> int:
        """Of the weights that this engine would load.

        Built on its own device: vLLM keeps rotary tables for the next model, which must be real.
        """
        with set_default_torch_dtype(model_config.dtype):
            model = build.without_weights(vllm_config, model_config, self.load_config)
        build.forget_layers(vllm_config, model)
        return memory.weight_bytes(model)

    def _disk_config(self) -> LoadConfig:
        return dataclasses.replace(self.load_config, load_format="auto", model_loader_extra_config={})

    def _load_from_disk(self, vllm_config, model_config, prefix):
        loader = DefaultModelLoader(self._disk_config())
        return loader.load_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)

    def download_model(self, model_config) -> None:
        DefaultModelLoader(self._disk_config()).download_model(model_config)

    def load_weights(self, model, model_config) -> None:
        raise Unsupported(
            "load format preload does not load into a model that is there: weights are put in place while "
            "it is built. Restart the engine"
        )

    def get_all_weights(self, model_config, model):
        raise Unsupported(
            "reload_weights() is not supported by load format preload: serve the new weights "
            "(preload serve --replace) and restart the engine"
        )


def _method(vllm_config) -> str:
    return vllm_config.speculative_config.method
