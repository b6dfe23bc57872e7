# SPDX-License-Identifier: Apache-2.0
"""The daemon's shard for one model of the engine: got once, kept from the memory accounting to the load."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass

import preload

from .._kernels import KernelLoader
from ..daemon import Daemon
from ..errors import Error, Failed, Mismatch, Released, Timeout, Unavailable, UsageError
from . import engine
from .options import Options

# What a load from disk may stand in for. Everything else is a fault that disk loading would hide.
RECOVERABLE = (Unavailable, Released, Failed, Mismatch, Timeout)


@dataclass
class Acquired:
    """What came of asking the daemon for one model: a shard, or why there is none."""

    role: str
    shard: preload.Attachment | None = None
    error: Error | None = None
    charged_bytes: int = 0  # of gpu_memory_utilization, by the worker
    context_ms: float = 0.0  # what the worker's CUDA context took, where it was made for this
    kernels: KernelLoader | None = None  # at work until the load


class Acquirer:
    """Asks for the target's or the draft's shard as the loader's options say."""

    def __init__(self, options: Options, vllm_config, model_config, load_config):
        self._options, self._vllm, self._model, self._load = options, vllm_config, model_config, load_config
        self.role = "draft" if engine.is_draft(vllm_config, model_config) else "target"
        if options.socket_path is not None and (self.role == "draft" or engine.has_served_draft(vllm_config)):
            raise UsageError(
                "load format preload: socket_path names the target's socket only, and the draft is served "
                "too: give socket_dir instead"
            )

    def where(self) -> dict:
        options = self._options
        found = {"device": engine.device_text(self._vllm), "slot": options.slot or None, "role": self.role}
        if options.socket_path is not None:
            found["socket_path"] = options.socket_path
        elif options.socket_dir is not None:
            found["socket_dir"] = options.socket_dir
        return {**found, "connect_timeout": options.connect_timeout_s}

    def directory(self) -> str | None:
        """Where daemons and engines meet; None: the default."""
        path = self._options.socket_path
        return self._options.socket_dir if path is None else os.path.dirname(path)

    def look(self) -> Daemon:
        return preload.find_daemon(**self.where())

    def shard(self, copy: bool = False) -> preload.Attachment:
        """Waits for and attaches what the engine needs; raises the client's errors, and Mismatch."""
        options = self._options
        shard = preload.attach(
            expect=engine.expectation(self._vllm, self._model, self._load, self.role),
            copy=copy,
            wait=options.state_timeout_s,
            absent_wait=options.wait_s,
            client_name=f"vllm {os.getpid()}",
            **self.where(),
        )
        engine.check_layout(shard.info.metadata)
        return shard

    def acquire(self) -> Acquired:
        """A shard, or the recoverable error; one that is not is raised."""
        context_ms = engine.make_context()
        try:
            return Acquired(self.role, shard=self.shard(), context_ms=context_ms)
        except RECOVERABLE as error:
            return Acquired(self.role, error=error)


class Kept:
    """What the accounting acquired, by model config, until the load takes it."""

    def __init__(self):
        self._by_model: dict = {}

    def put(self, model_config, acquired: Acquired) -> None:
        key = id(model_config)

        def forget(_) -> None:
            self._by_model.pop(key, None)

        self._by_model[key] = (weakref.ref(model_config, forget), acquired)

    def take(self, model_config) -> Acquired | None:
        found = self._by_model.pop(id(model_config), None)
        return None if found is None else found[1]


KEPT = Kept()
