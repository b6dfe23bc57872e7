# SPDX-License-Identifier: Apache-2.0
"""The native attachment: one reference to it, and its tensor table fetched in one call."""

from __future__ import annotations

import ctypes
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
    hash: str


# preload_tensor; the padding after `hash` brings it to a multiple of 8.
_RECORD = struct.Struct("=QQQQQQII8q8qiiq33s7x")
assert _RECORD.size == ctypes.sizeof(_library.TensorRecord)


class Shard:
    """Owns one reference to a preload_attachment; arrays and tensors hold the shard."""

    def __init__(self, pointer: int):
        self._library = _library.library()
        self.pointer = pointer
        self.info = _library.AttachmentInfo(struct_size=ctypes.sizeof(_library.AttachmentInfo))
        _library.check(self._library.preload_get_info(pointer, ctypes.byref(self.info)))
        self.records = self._read_records()
        self.torch_cache: dict = {}  # target index -> torch tensor: aliases are one object

    def __del__(self):
        if getattr(self, "pointer", None):
            self._library.preload_detach(self.pointer)
            self.pointer = None

    def target(self, record: Record) -> Record:
        """The record itself, or the one that it is another name of."""
        return record if record.alias_of < 0 else self.records[record.alias_of]

    def _read_records(self) -> list[Record]:
        count = self.info.tensor_count
        table = (_library.TensorRecord * count)()
        if count:
            table[0].struct_size = _RECORD.size
        _library.check(self._library.preload_get_tensors(self.pointer, table, count))
        names, dtypes = ctypes.string_at, {}
        records = []
        for index, row in enumerate(_RECORD.iter_unpack(table)):
            dtype = dtypes.get(row[2])
            if dtype is None:
                dtype = dtypes[row[2]] = names(row[2]).decode()
            ndim = row[7]
            records.append(
                Record(
                    index,
                    names(row[1]).decode(),
                    dtype,
                    row[3],
                    row[4],
                    row[5],
                    row[6],
                    row[8 : 8 + ndim],
                    row[16 : 16 + ndim],
                    row[24] != 0,
                    row[25] != 0,
                    row[26],
                    row[27][:32].decode(),
                )
            )
        return records
