# SPDX-License-Identifier: Apache-2.0
"""One exception per status of the client library."""

from __future__ import annotations

import json


class Error(Exception):
    """A call that failed; the text names the thing and the remedy."""

    status = "internal"


class InternalError(Error):
    """A bug, or a status nobody foresaw."""


class UsageError(Error, ValueError):
    """A bad argument, or a socket directory that is not safe to use."""

    status = "usage"


class DeviceError(Error):
    """The CUDA driver refused, or the GPU is not visible here."""

    status = "device"


class Unavailable(Error):
    """No daemon is there, or it is not serving yet."""

    status = "unavailable"


class Mismatch(Error):
    """The daemon holds something else than expected.

    ``fields`` maps each differing key field to ``{"expected": ..., "served": ...}``.
    """

    status = "mismatch"

    def __init__(self, text: str, fields: dict | None = None):
        super().__init__(text)
        self.fields = fields or {}


def _pairs(found: dict) -> list[str]:
    return [f"{name}: {mine} in the model, {served} served" for name, (mine, served) in found.items()]


class TensorMismatch(Mismatch):
    """The model has other tensors than the daemon serves; nothing was changed.

    ``missing`` and ``extra`` are names, ``tied`` names that the model holds as one tensor and the
    daemon as several, ``shapes`` and ``dtypes`` map a name to (the model's, the served one).
    """

    def __init__(self, missing=(), extra=(), tied=(), shapes=None, dtypes=None):
        self.missing, self.extra, self.tied = list(missing), list(extra), list(tied)
        self.shapes, self.dtypes = dict(shapes or {}), dict(dtypes or {})
        parts = [
            f"{what} ({len(names)}): {', '.join(names)}"
            for what, names in (
                ("not served", self.missing),
                ("unknown to the model", self.extra),
                ("one tensor in the model, several served", self.tied),
                ("other shapes", _pairs(self.shapes)),
                ("other dtypes", _pairs(self.dtypes)),
            )
            if names
        ]
        super().__init__("the model and the served weights differ; " + "; ".join(parts))


class Unsupported(Error):
    """What was asked for cannot be done with weights that are shared: never a matter of waiting."""

    status = "unsupported"


class NotEnoughMemory(Error, MemoryError):
    """A copy of the weights does not fit."""

    status = "memory"


class Released(Error):
    """The daemon's weights were released."""

    status = "released"


class ProtocolError(Error):
    """The peer broke the protocol, or is not to be trusted."""

    status = "protocol"


class Timeout(Error, TimeoutError):
    """The wait for a daemon ran out."""

    status = "timeout"


class Failed(Error):
    """The daemon failed while loading; the text is its own."""

    status = "failed"


OK, MISMATCH = 0, 5
_BY_STATUS = {
    1: InternalError,
    2: UsageError,
    3: DeviceError,
    4: Unavailable,
    5: Mismatch,
    6: Released,
    7: ProtocolError,
    8: Timeout,
    9: Failed,
    11: NotEnoughMemory,
    12: DeviceError,  # an address range that is not free
}


def error_of(status: int, text: str, fields_json: str) -> Error:
    if status == MISMATCH:
        return Mismatch(text, json.loads(fields_json))
    return _BY_STATUS.get(status, InternalError)(text)
