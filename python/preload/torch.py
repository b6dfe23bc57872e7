# SPDX-License-Identifier: Apache-2.0
"""State dicts of served weights, without a copy.

    import preload.torch

    state = preload.torch.load(device="cuda:0", wait=60)
    model.load_state_dict(state, assign=True)

Tensors that are shared are read-only: torch cannot say so, and a write to one ends the process (on host
memory) or the CUDA context (on a GPU). Those that engines write to (``private``) are copies.
"""

from __future__ import annotations

import os
import time

from .attachment import Info, attach
from .errors import UsageError
from .timing import Timing

__all__ = ["StateDict", "load"]


class StateDict(dict):
    """torch tensors by name, in the layout's order; names of one tensor give the same object.

    ``info`` tells what is attached, ``timing`` how long it took, ``read_only`` where memory begins and ends
    that must not be written. Each tensor keeps the lease.
    """

    info: Info
    timing: Timing
    read_only: list


def load(gpu=None, *, model=None, trusted: bool = False, expect=None, **where) -> StateDict:
    """All tensors that a local daemon serves, on the device where they are.

    model: the checkpoint's directory or hub id, whose files must be those that the daemon loaded;
        trusted: believe it without looking. expect: as in preload.attach, instead of model.
    gpu and where: as in preload.attach (device, slot, role, socket_dir, wait, copy …).

    Raises preload's errors; TypeError for a dtype that this torch does not have.
    """
    if model is not None and expect is not None:
        raise UsageError("give model or expect, not both")
    if model is not None and not trusted:
        expect = {"model": os.fspath(model)}
    timing = Timing()
    attachment = attach(gpu, expect=expect, **where)
    timing.add("attach", attachment.attach_ms)
    start = time.perf_counter()
    state = StateDict(attachment.torch())
    timing.add("tensors", (time.perf_counter() - start) * 1000)
    state.info, state.timing = attachment.info, timing
    state.read_only = attachment.shared_ranges()
    return state
