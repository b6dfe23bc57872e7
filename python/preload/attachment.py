# SPDX-License-Identifier: Apache-2.0
"""attach() and what it gives."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from . import _library, _torch
from ._shard import Shard
from .daemon import Where
from .errors import OK, UsageError
from .tensor import Tensor


@dataclass(frozen=True)
class Info:
    """What an attachment is of."""

    device: str  # "gpu-…", "mig-…" or "host:N"
    slot: str
    role: str
    key: str  # 64 hex digits
    global_rank: int
    generation: int
    memory: str  # "host" or "cuda"
    cuda_device: int | None  # ordinal in this process
    tensors: int
    slabs: int
    bytes: int
    evidence: str  # what a match rests on: "none", "key", "receipt", "hash" or "sample"
    base_address: int  # of the range that all slabs lie in; 0: they lie apart
    range_bytes: int
    is_copy: bool  # memory of our own, writable; the daemon holds nothing for us
    metadata: dict = field(repr=False)  # model attributes, key fields, rank, sizes


class Attachment(Mapping):
    """Tensors by name, in the layout's order. A context manager: leaving it detaches.

    After ``detach()`` the mapping is empty-handed, but arrays and tensors taken from it stay valid;
    memory and lease go with the last of them.
    """

    def __init__(self, shard: Shard, attach_ms: float):
        self._shard: Shard | None = shard
        self._index = {name: index for index, name in enumerate(shard.names)}
        self._tensors: dict = {}
        self.attach_ms = attach_ms
        self.memory_bytes = shard.info.bytes
        self.info = _info_of(shard)

    def _open(self) -> Shard:
        if self._shard is None:
            raise UsageError("the attachment was detached: attach again")
        return self._shard

    def __getitem__(self, name: str) -> Tensor:
        shard = self._open()
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = Tensor(shard, shard.record(self._index[name]))
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def torch(self) -> dict:
        """All tensors as zero-copy torch tensors by name; aliases are the same object."""
        return _torch.build_all(self._open())

    def shared_ranges(self) -> list[tuple[int, int]]:
        """Where memory lies that must not be written: begin and end addresses."""
        slabs = self._open().slabs()
        return [(slab.data, slab.data + slab.bytes) for slab in slabs if slab.bytes and not slab.is_private]

    def detach(self) -> None:
        """Lets go. What was taken from the attachment keeps it mapped. May be called again."""
        shard, self._shard = self._shard, None
        self._index, self._tensors = {}, {}
        if shard is not None:
            shard.torch_cache.clear()

    @property
    def detached(self) -> bool:
        return self._shard is None

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *exception) -> None:
        self.detach()

    def __repr__(self) -> str:
        state = "detached" if self.detached else f"{len(self)} tensors, {self.memory_bytes} bytes"
        return f"<preload.Attachment {self.info.device} {self.info.role}: {state}>"


def _info_of(shard: Shard) -> Info:
    info = shard.info
    on_cuda = info.memory == 1
    return Info(
        device=info.device.decode(),
        slot=info.slot.decode(),
        role=info.role.decode(),
        key=info.key.decode(),
        global_rank=info.global_rank,
        generation=info.generation,
        memory="cuda" if on_cuda else "host",
        cuda_device=info.cuda_device if on_cuda else None,
        tensors=info.tensor_count,
        slabs=info.slab_count,
        bytes=info.bytes,
        evidence=info.evidence.decode(),
        base_address=info.base_address,
        range_bytes=info.range_bytes,
        is_copy=info.is_copy != 0,
        metadata=json.loads(info.metadata_json),
    )


def _expect_text(expect) -> bytes | None:
    """A key's 64 hex digits, a model's directory, or a mapping as client.h describes it."""
    if expect is None:
        return None
    if isinstance(expect, os.PathLike):
        expect = {"model": os.fspath(expect)}
    elif isinstance(expect, str):
        expect = {"key": expect}
    return json.dumps(expect).encode()


class _Call:
    """preload_attach on a thread of its own, so that Ctrl-C can end a long wait."""

    def __init__(self, options: _library.AttachOptions):
        self._options, self._lock = options, threading.Lock()
        self._abandoned, self._error, self._pointer = False, None, None

    def run(self) -> None:
        pointer = ctypes.c_void_p()
        lib = _library.library()
        status = lib.preload_attach(ctypes.byref(self._options), ctypes.byref(pointer))
        with self._lock:
            if status != OK:
                self._error = _library.last_error(status)  # the text is this thread's
            elif self._abandoned:
                lib.preload_detach(pointer)
            else:
                self._pointer = pointer.value

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._pointer is not None:
                _library.library().preload_detach(self._pointer)

    def result(self) -> int:
        if self._error is not None:
            raise self._error
        return self._pointer


def _attach(options: _library.AttachOptions) -> int:
    call = _Call(options)
    if options.wait_timeout_ms == 0 and options.absent_timeout_ms <= 0:
        call.run()
        return call.result()
    thread = threading.Thread(target=call.run, name="preload-attach", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
    except BaseException:
        call.abandon()
        raise
    return call.result()


def attach(gpu=None, *, expect=None, copy: bool = False, base_address: int = 0, **where) -> Attachment:
    """Maps what a local daemon serves and takes a lease on it.

    ``gpu`` and ``where`` are the arguments of ``Where``: which daemon, and how long to wait for it. Further:

    expect: the key that must be served, the checkpoint's directory as a pathlib.Path, or a mapping with
        any of "key", "checkpoint", "fields": {name: value}, "model": directory or hub id, "revision" and
        "trust_sample". A model's files are compared with what was loaded; ``info.evidence`` says how.
    copy: take a writable copy, hold no lease, and ask the daemon to free its weights with the last one.
    base_address: where all slabs are to lie, as ``info.base_address`` told of an earlier attachment.

    Raises Unavailable, Timeout, Failed, Mismatch, Released, DeviceError, NotEnoughMemory, ProtocolError,
    UsageError.
    """
    options = Where(gpu=gpu, **where).options()
    options.expect_json = _expect_text(expect)
    options.mode = int(copy)
    options.base_address = base_address
    _library.library()  # finding it is not part of the time
    start = time.perf_counter()
    pointer = _attach(options)
    shard = Shard(pointer)
    return Attachment(shard, (time.perf_counter() - start) * 1000)
