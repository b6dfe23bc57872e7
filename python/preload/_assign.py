# SPDX-License-Identifier: Apache-2.0
"""Served tensors put in place of a model's parameters, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ._guard import guard
from .errors import TensorMismatch


@dataclass
class _Slot:
    """One tensor object of a model and every place and name that it has."""

    tensor: torch.Tensor
    is_buffer: bool
    names: list = field(default_factory=list)
    places: list = field(default_factory=list)  # (dict of the module, leaf)


def _slots(model: torch.nn.Module) -> list[_Slot]:
    found: dict = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for held, is_buffer in ((module._parameters, False), (module._buffers, True)):
            for leaf, tensor in held.items():
                if tensor is None:
                    continue
                slot = found.get(id(tensor))
                if slot is None:
                    slot = found[id(tensor)] = _Slot(tensor, is_buffer)
                slot.names.append(f"{prefix}.{leaf}" if prefix else leaf)
                slot.places.append((held, leaf))
    return list(found.values())


def _replace(slot: _Slot, served: torch.Tensor) -> None:
    """Makes the slot's tensor be the served one, for whoever holds it: the object stays the same.

    What captured a parameter when the model was built (routers hold their gate's bias, for one) would
    go on with the old one if it were only registered anew.
    """
    old = slot.tensor
    new = (
        torch.Tensor._make_subclass(type(old), served, False)
        if type(old) is not torch.Tensor
        else served.detach()
    )
    new.__dict__.update(old.__dict__)
    torch.utils.swap_tensors(old, new)


def assign(model: torch.nn.Module, tensors: dict, absent: frozenset = frozenset(), read_only=()) -> None:
    """Puts ``tensors`` (by name, aliases the same object) into ``model``, which keeps its aliases.

    Every parameter must be served under one of its names, and every tensor served must have a place,
    with the same shape and dtype; ``absent`` are parameters that need not be served. Buffers that are
    not served stay what the model computed. What lies in ``read_only`` (begin and end addresses) refuses to
    be written from then on, where it is of torch's own types. Raises TensorMismatch with all differences, before
    anything is changed.
    """
    slots = _slots(model)
    chosen = _match(slots, tensors, absent)
    first: dict = {}  # served tensor -> the slot that has it
    for slot, served in chosen:
        _replace(slot, served)
        keeper = first.setdefault(id(served), slot)
        if keeper is not slot:  # served as one tensor: the model holds one object
            for held, leaf in slot.places:
                held[leaf] = keeper.tensor
        elif any(begin <= served.data_ptr() < end for begin, end in read_only):
            guard(slot.tensor, slot.names[0])


def _match(slots: list[_Slot], tensors: dict, absent: frozenset) -> list:
    missing, tied, shapes, dtypes, chosen = [], [], {}, {}, []
    places = set()
    for slot in slots:
        places.update(slot.names)
        served = {id(tensors[name]): (name, tensors[name]) for name in slot.names if name in tensors}
        if not served:
            if not slot.is_buffer and not absent.intersection(slot.names):
                missing.append(slot.names[0])
            continue
        if len(served) > 1:
            tied.append(" = ".join(name for name, _ in served.values()))
        name, tensor = next(iter(served.values()))
        if tuple(slot.tensor.shape) != tuple(tensor.shape):
            shapes[name] = (tuple(slot.tensor.shape), tuple(tensor.shape))
        if slot.tensor.dtype != tensor.dtype:
            dtypes[name] = (slot.tensor.dtype, tensor.dtype)
        chosen.append((slot, tensor))
    extra = [name for name in tensors if name not in places]
    if missing or extra or tied or shapes or dtypes:
        raise TensorMismatch(missing=missing, extra=extra, tied=tied, shapes=shapes, dtypes=dtypes)
    return chosen
