# SPDX-License-Identifier: Apache-2.0
"""Which daemon is meant, and one look at it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import re
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
        for name in ("wait", "connect_timeout", "absent_wait"):
            _check_seconds(name, getattr(self, name))
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


def places_on(device: str, socket_dir=None) -> list[tuple[str, str]]:
    """(slot, role) of every daemon of a device that holds its lock, or whose weights a keeper may have.

    device: as daemons name it, "gpu-8-4-4-4-12" or "host:N". docs/protocol.md says how files are named.
    """
    folder = socket_dir or os.environ.get("PRELOAD_SOCKET_DIR") or f"/tmp/preload-{os.geteuid()}"
    stem = hashlib.sha256(device.encode()).hexdigest()[:16]
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if match := re.fullmatch(stem + r"(?:\.([a-z0-9-]{1,32}))?(_draft)?\.(?:lock|state)", name):
                slot, draft = match.groups()
                if slot != "next":
                    found.add((slot or "", "draft" if draft else "target"))
    return sorted(found)


def _check_seconds(name: str, value) -> None:
    if value is None and name == "absent_wait":
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (value == 0 and name == "connect_timeout"):
        raise UsageError(f"{name} must be a finite number of seconds, not negative, and connect_timeout not 0: {value!r}")


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
