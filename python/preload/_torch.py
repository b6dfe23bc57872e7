# SPDX-License-Identifier: Apache-2.0
"""torch tensors over the slabs: one DLPack import per slab, then a few microseconds per tensor."""

from __future__ import annotations

from . import _dlpack
from ._dtypes import DTYPES, row_major, stored_shape
from ._shard import Record, Shard


def _torch_dtype(torch, record: Record):
    name = DTYPES[record.dtype].torch
    dtype = getattr(torch, name, None) if name else None
    if dtype is None:
        raise TypeError(
            f"{record.name} is {record.dtype}, which torch {torch.__version__} has no type for: "
            "update torch, or take the bytes with numpy()"
        )
    return dtype


class _Builder:
    def __init__(self, shard: Shard):
        import torch

        self._torch, self._shard = torch, shard
        self._storages: dict = {}  # slab -> (storage, device)
        self._empties: dict = {}  # dtype name -> torch dtype

    def _storage(self, slab: int):
        found = self._storages.get(slab)
        if found is None:
            capsule = _dlpack.slab_capsule(self._shard.pointer, slab)
            view = self._torch.utils.dlpack.from_dlpack(capsule)
            found = self._storages[slab] = (view.untyped_storage(), view.device)
        return found

    def build(self, record: Record):
        cache = self._shard.torch_cache
        target = self._shard.target(record)
        tensor = cache.get(target.index)
        if tensor is not None:
            return tensor
        dtype = self._empties.get(target.dtype)
        if dtype is None:
            dtype = self._empties[target.dtype] = _torch_dtype(self._torch, target)
        shape, strides = target.shape, target.strides
        if DTYPES[target.dtype].bits % 8 != 0:
            shape = stored_shape(target.dtype, shape, target.nbytes)
            strides = row_major(shape)
        storage, device = self._storage(target.slab)
        offset = target.slab_offset * 8 // max(8, DTYPES[target.dtype].bits)
        tensor = self._torch.empty(0, dtype=dtype, device=device)
        tensor.set_(storage, offset, shape, strides)
        cache[target.index] = tensor
        return tensor


def build_one(shard: Shard, record: Record):
    found = shard.torch_cache.get(shard.target(record).index)
    return found if found is not None else _Builder(shard).build(record)


def build_all(shard: Shard) -> dict:
    builder = _Builder(shard)
    return {name: builder.build(shard.record(i)) for i, name in enumerate(shard.names)}
