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
}


def error_of(status: int, text: str, fields_json: str) -> Error:
    if status == MISMATCH:
        return Mismatch(text, json.loads(fields_json))
    return _BY_STATUS.get(status, InternalError)(text)
