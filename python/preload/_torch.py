# SPDX-License-Identifier: Apache-2.0
"""torch tensors over the slabs: one DLPack import per slab, then a few microseconds per tensor."""

from __future__ import annotations

from . import _dlpack
from ._dtypes import DTYPES, row_major, stored_shape
from ._shard import Record, Shard


class _Builder:
    def __init__(self, shard: Shard):
        import torch

        self._torch, self._shard = torch, shard
        self._bytes: dict = {}  # slab -> all of it as uint8
        self._bases: dict = {}  # (slab, dtype) -> the slab in that type: as_strided, element bytes

    def _slab(self, slab: int):
        found = self._bytes.get(slab)
        if found is None:
            capsule = _dlpack.slab_capsule(self._shard.pointer, slab)
            found = self._bytes[slab] = self._torch.utils.dlpack.from_dlpack(capsule)
        return found

    def _base(self, record: Record):
        name = DTYPES[record.dtype].torch
        dtype = getattr(self._torch, name, None) if name else None
        if dtype is None:
            raise TypeError(
                f"{record.name} is {record.dtype}, which torch {self._torch.__version__} has no "
                "type for: update torch, or take the bytes with numpy()"
            )
        view = self._slab(record.slab).view(dtype)  # slabs are multiples of every element size
        base = (view.as_strided, view.element_size())
        self._bases[record.slab, record.dtype] = base
        return base

    def build(self, record: Record):
        if record.alias_of >= 0:
            record = self._shard.record(record.alias_of)
        cache = self._shard.torch_cache
        tensor = cache.get(record.index)
        if tensor is None:
            as_strided, size = self._bases.get((record.slab, record.dtype)) or self._base(record)
            shape, strides = record.shape, record.strides
            if DTYPES[record.dtype].bits < 8:
                shape = stored_shape(record.dtype, shape, record.nbytes)
                strides = row_major(shape)
            tensor = as_strided(shape, strides, record.slab_offset // size)
            cache[record.index] = tensor
        return tensor


def build_one(shard: Shard, record: Record):
    found = shard.torch_cache.get(shard.target(record).index)
    return found if found is not None else _Builder(shard).build(record)


def build_all(shard: Shard) -> dict:
    build, record = _Builder(shard).build, shard.record
    return {name: build(record(index)) for index, name in enumerate(shard.names)}
