# SPDX-License-Identifier: Apache-2.0
"""What an engine leaves with a daemon for its successor: tuning tables, caches of compiled code.

    preload.put_artifact("autotune/3f9c/rank0.json", table, metadata=versions)
    found = preload.get_artifact("autotune/3f9c/rank0.json")
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from . import _library
from .daemon import Where
from .errors import UsageError


@dataclass(frozen=True)
class Artifact:
    data: bytes
    metadata: str  # as it was put; "" without


def put_artifact(key: str, data: bytes, metadata: str = "", **where) -> None:
    """Leaves ``data`` (1 byte to 64 MiB) under ``key`` with the daemon that ``where`` names (see Where).

    ``key`` is a path of names of letters, digits, ".", "_" and "-"; what it had before is replaced.
    ``metadata``, at most 64 KiB, is handed back as it is: what has to hold for the data to be of use.
    The daemon keeps 256 MiB in all; past that, what was not used for longest goes. A keeper and the
    daemon's successor get what it has; where neither is there, it ends with the daemon.
    """
    options = Where(**where).options()
    data = bytes(data)
    _library.check(
        _library.library().preload_put_artifact(
            ctypes.byref(options), _text(key), _text(metadata), data, len(data)
        )
    )


def get_artifact(key: str, **where) -> Artifact | None:
    """What was put under this very key, or None."""
    options = Where(**where).options()
    found = _library.Artifact(struct_size=ctypes.sizeof(_library.Artifact))
    library = _library.library()
    status = library.preload_get_artifact(ctypes.byref(options), _text(key), ctypes.byref(found))
    if status == _library.NOT_FOUND:
        return None
    _library.check(status)
    try:
        return Artifact(ctypes.string_at(found.data, found.bytes), found.metadata.decode())
    finally:
        library.preload_free_artifact(ctypes.byref(found))


def _text(text: str) -> bytes:
    encoded = text.encode()
    if b"\0" in encoded:
        raise UsageError("a key or metadata with a NUL character")
    return encoded
