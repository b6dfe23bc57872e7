# SPDX-License-Identifier: Apache-2.0
"""Which daemon is meant, and one look at it."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass

from . import _library
from .errors import UsageError

STATES = ("ABSENT", "LOADING", "READY", "DRAINING", "RELEASED", "FAILED", "ORPHANED")


@dataclass(frozen=True)
class Where:
    """One daemon of this machine.

    gpu, device: a CUDA index (int), a GPU's UUID, "cuda:N" or "host:N"; neither: the only daemon.
    slot, role: which of several on that device.
    socket_dir: where daemons and clients meet; None: $PRELOAD_SOCKET_DIR, else /tmp/preload-<uid>.
    socket_path: this very socket instead; device, slot and role are then only checked where given.
    wait: seconds to wait for a daemon that is loading or not there yet.
    absent_wait: seconds to wait for a first sign of a daemon, when that is not ``wait``.
    connect_timeout: seconds for one connect and the greeting.
    """

    gpu: object = None
    device: object = None
    slot: str | None = None
    role: str | None = None
    socket_dir: str | os.PathLike | None = None
    socket_path: str | os.PathLike | None = None
    wait: float = 0
    absent_wait: float | None = None
    connect_timeout: float = 5.0
    client_name: str | None = None

    def options(self) -> _library.AttachOptions:
        if self.wait < 0 or self.connect_timeout <= 0 or (self.absent_wait or 0) < 0:
            raise UsageError("waits must not be negative and connect_timeout must be positive")
        absent = 0 if self.absent_wait is None else _milliseconds(self.absent_wait) or -1
        return _library.AttachOptions(
            struct_size=ctypes.sizeof(_library.AttachOptions),
            socket_dir=None if self.socket_dir is None else os.fsencode(self.socket_dir),
            socket_path=None if self.socket_path is None else os.fsencode(self.socket_path),
            device=_device_text(self.gpu, self.device),
            slot=self.slot.encode() if self.slot else None,
            role=self.role.encode() if self.role else None,
            client_name=(self.client_name or _client_name()).encode(),
            connect_timeout_ms=max(1, _milliseconds(self.connect_timeout)),
            wait_timeout_ms=_milliseconds(self.wait),
            absent_timeout_ms=absent,
        )


@dataclass(frozen=True)
class Daemon:
    """What one look told. Texts are empty and numbers 0 where they are not known."""

    state: str  # one of STATES
    memory: str  # "host" or "cuda"; of no meaning while ABSENT
    cuda_device: int | None  # ordinal in this process
    pid: int
    bytes: int  # of its slabs; while LOADING, what is to be read
    generation: int
    device: str
    slot: str
    role: str
    job: str
    model: str
    key: str
    text: str  # how far it is, why it failed, or what was looked for


def find_daemon(**where) -> Daemon:
    """One look at the daemon that ``where`` names (see Where), without waiting or taking a lease."""
    options = Where(**where).options()
    found = _library.Daemon(struct_size=ctypes.sizeof(_library.Daemon))
    _library.check(_library.library().preload_find_daemon(ctypes.byref(options), ctypes.byref(found)))
    texts = {
        name: getattr(found, name).decode()
        for name in ("device", "slot", "role", "job", "model", "key", "text")
    }
    return Daemon(
        state=STATES[found.state],
        memory="cuda" if found.memory == 1 else "host",
        cuda_device=found.cuda_device if found.cuda_device >= 0 else None,
        pid=found.pid,
        bytes=found.bytes,
        generation=found.generation,
        **texts,
    )


def _milliseconds(seconds: float) -> int:
    return min(int(seconds * 1000), 2**31 - 1)


def _device_text(gpu, device) -> bytes | None:
    """``gpu`` or ``device`` as the library takes it; torch.device("cuda:1") and "cuda:1" too."""
    if gpu is not None and device is not None:
        raise UsageError("give gpu or device, not both")
    chosen = gpu if gpu is not None else device
    if chosen is None:
        return None
    text = str(chosen)
    if text == "cuda":
        text = "0"
    elif text.startswith("cuda:"):
        text = text[len("cuda:") :]
    return text.encode()


def _client_name() -> str:
    name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else ""
    return name if name and not name.startswith("-") else "python"
