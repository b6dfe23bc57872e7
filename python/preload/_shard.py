# SPDX-License-Identifier: Apache-2.0
"""The native attachment: one reference to it, and its tensor table fetched in one call."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import NamedTuple

from . import _library


class Record(NamedTuple):
    """One tensor, as plain Python values."""

    index: int
    name: str
    dtype: str
    address: int
    nbytes: int
    slab_offset: int
    slab: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_buffer: bool
    is_private: bool
    alias_of: int
    hash: bytes  # 32 hex digits and a NUL


# preload_tensor; the padding after `hash` brings it to a multiple of 8.
_RECORD = struct.Struct("=QQQQQQII8q8qiiq33s7x")
_NAME = struct.Struct(f"=8xQ{_RECORD.size - 16}x")  # its name alone
assert _RECORD.size == _NAME.size == ctypes.sizeof(_library.TensorRecord)


class Shard:
    """Owns one reference to a preload_attachment; arrays and tensors hold the shard.

    Names are read at once, the rest of a record when it is first asked for: a shard may have 90,000.
    """

    def __init__(self, pointer: int):
        self._library = _library.library()
        self.pointer = pointer
        self.info = _library.AttachmentInfo(struct_size=ctypes.sizeof(_library.AttachmentInfo))
        _library.check(self._library.preload_get_info(pointer, ctypes.byref(self.info)))
        self._table = self._read_table()
        text_at = ctypes.string_at
        self.names = [text_at(row[0]).decode() for row in _NAME.iter_unpack(self._table)]
        self._records: list[Record | None] = [None] * len(self.names)
        self.torch_cache: dict = {}  # target index -> torch tensor: aliases are one object

    def __del__(self):
        if getattr(self, "pointer", None):
            self._library.preload_detach(self.pointer)
            self.pointer = None

    def record(self, index: int) -> Record:
        found = self._records[index]
        if found is None:
            found = self._records[index] = self._make_record(index)
        return found

    def target(self, record: Record) -> Record:
        """The record itself, or the one that it is another name of."""
        return record if record.alias_of < 0 else self.record(record.alias_of)

    def slabs(self) -> list:
        found = []
        for index in range(self.info.slab_count):
            slab = _library.Slab(struct_size=ctypes.sizeof(_library.Slab))
            _library.check(self._library.preload_get_slab(self.pointer, index, ctypes.byref(slab)))
            found.append(slab)
        return found

    def _read_table(self):
        table = (_library.TensorRecord * self.info.tensor_count)()
        if self.info.tensor_count:
            table[0].struct_size = _RECORD.size
        _library.check(self._library.preload_get_tensors(self.pointer, table, self.info.tensor_count))
        return table

    def _make_record(self, index: int) -> Record:
        row = _RECORD.unpack_from(self._table, index * _RECORD.size)
        ndim = row[7]
        # In the order of Record's members; by position, which takes half the time of by name.
        return Record(
            index,
            self.names[index],
            _dtype_at(row[2]),
            row[3],
            row[4],
            row[5],
            row[6],
            row[8 : 8 + ndim],
            row[16 : 16 + ndim],
            row[24] != 0,
            row[25] != 0,
            row[26],
            row[27],
        )


@functools.lru_cache(maxsize=None)
def _dtype_at(address: int) -> str:
    """The library's own literals: as many addresses as types."""
    return ctypes.string_at(address).decode()
