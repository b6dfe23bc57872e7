# SPDX-License-Identifier: Apache-2.0
"""Which daemon is meant, and one look at it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
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
    allow_uids: user ids whose daemons are trusted besides our own and root's; $PRELOAD_ALLOW_UIDS adds to them.
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
    allow_uids: Sequence[int] = ()

    def options(self) -> _library.AttachOptions:
        wait, connect = _milliseconds("wait", self.wait), _milliseconds("connect_timeout", self.connect_timeout)
        if self.connect_timeout == 0:
            raise UsageError("connect_timeout must be more than 0 seconds")
        absent = 0 if self.absent_wait is None else _milliseconds("absent_wait", self.absent_wait) or -1
        return _library.AttachOptions(
            struct_size=ctypes.sizeof(_library.AttachOptions),
            socket_dir=None if self.socket_dir is None else os.fsencode(self.socket_dir),
            socket_path=None if self.socket_path is None else os.fsencode(self.socket_path),
            device=_device_text(self.gpu, self.device),
            slot=self.slot.encode() if self.slot else None,
            role=self.role.encode() if self.role else None,
            client_name=(self.client_name or _client_name()).encode(),
            connect_timeout_ms=max(1, connect),
            wait_timeout_ms=wait,
            absent_timeout_ms=absent,
            allow_uids=",".join(map(str, self.allow_uids)).encode() or None,
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


def daemons_in(socket_dir: str | os.PathLike | None, connect_timeout: float = 5.0) -> list[Daemon]:
    """One look at each daemon of a directory (None: the default one), and at what a keeper has of one."""
    directory = socket_dir or os.environ.get("PRELOAD_SOCKET_DIR") or f"/tmp/preload-{os.geteuid()}"
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    places = sorted({name.removesuffix(".state") for name in names if name.endswith(".state")})
    found = (
        find_daemon(socket_path=os.path.join(directory, f"{place}.sock"), connect_timeout=connect_timeout)
        for place in places
    )
    return [daemon for daemon in found if daemon.state != "ABSENT"]


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


def _milliseconds(what: str, seconds: float) -> int:
    """At most what the library takes, 24.8 days: infinity means that."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise UsageError(f"{what} must be a number of seconds, not negative, not {seconds!r}")
    return int(min(seconds * 1000, 2**31 - 1))


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
