# SPDX-License-Identifier: Apache-2.0
"""Attach to model weights that a preload daemon keeps resident.

    import preload

    with preload.attach(gpu=0, wait=60) as shard:
        weight = shard["model.layers.0.self_attn.qkv_proj.weight"].torch()

Tensors are mapped, not copied; shared ones are read-only, and a write to one faults in this process
alone. Every array and tensor keeps the mapping and its lease alive. NumPy and torch are imported only
when asked for.
"""

from .artifacts import Artifact, get_artifact, put_artifact
from .attachment import Attachment, Info, attach
from .daemon import Daemon, Where, find_daemon
from .errors import (
    DeviceError,
    Error,
    Failed,
    InternalError,
    Mismatch,
    NotEnoughMemory,
    ProtocolError,
    Released,
    TensorMismatch,
    Timeout,
    Unavailable,
    Unsupported,
    UsageError,
)
from .tensor import Tensor

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "Attachment",
    "Daemon",
    "DeviceError",
    "Error",
    "Failed",
    "Info",
    "InternalError",
    "Mismatch",
    "NotEnoughMemory",
    "ProtocolError",
    "Released",
    "Tensor",
    "TensorMismatch",
    "Timeout",
    "Unavailable",
    "Unsupported",
    "UsageError",
    "Where",
    "attach",
    "find_daemon",
    "get_artifact",
    "put_artifact",
]
