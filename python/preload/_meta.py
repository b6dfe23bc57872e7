# SPDX-License-Identifier: Apache-2.0
"""Models built without memory for their weights, and the proof that nothing was left that way."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils._device import DeviceContext

_WITHOUT_CONTENT = frozenset({torch.empty, torch.empty_strided})
_LARGE_BYTES = 1 << 20


class WeightsOnMeta(DeviceContext):
    """Builds models whose weights take no memory, while what their constructors compute is real.

    What is allocated without content goes to meta, and so does a large parameter as soon as it is
    registered, whatever it was filled with. Rotary tables, scales and expert maps come out as the
    constructor makes them, on ``device``. Whoever asks for a device by name gets that device.

    It is the device context too, since every call of torch passes through each mode there is.
    """

    def __enter__(self):
        self._hook = register_module_parameter_registration_hook(_to_meta)
        return super().__enter__()

    def __exit__(self, *exception):
        self._hook.remove()
        return super().__exit__(*exception)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _WITHOUT_CONTENT and (not kwargs or kwargs.get("device") is None):
            return func(*args, **{**(kwargs or {}), "device": "meta"})
        return super().__torch_function__(func, types, args, kwargs)


def _to_meta(module: torch.nn.Module, name: str, parameter) -> None:
    """Gives a registered parameter's memory back; the object stays, whoever else holds it."""
    if parameter is None or parameter.is_meta or parameter.nbytes < _LARGE_BYTES:
        return
    empty = torch.Tensor._make_subclass(type(parameter), parameter.to("meta"), parameter.requires_grad)
    empty.__dict__.update(parameter.__dict__)
    torch.utils.swap_tensors(parameter, empty)


# Nothing below these can hold a tensor of the model.
_LEAVES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    torch.dtype,
    torch.device,
    torch.Size,
    torch.Generator,
)


_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set, frozenset})
_MEMBERS = ("_parameters", "_buffers", "_modules")


class _Readers(dict):
    """By type, what reads its values' children; None for a leaf."""

    def __init__(self, leaves: tuple):
        super().__init__()
        self._leaves = leaves

    def __missing__(self, kind: type):
        reader = self[kind] = None if issubclass(kind, self._leaves) else _reader_of(kind)
        return reader


class _Walk:
    """Everything reachable from a model through attributes, containers, closures and partials.

    A value's path is a chain of links, made into text for what is found alone: there are thousands. Most
    children are leaves or empty containers (a module has ten for hooks), so they are left out first.
    """

    def __init__(self, skip: tuple):
        self._readers = _Readers((*_LEAVES, *skip))
        self._seen: set = set()
        self.found: list = []

    def visit(self, root, path: str) -> None:
        pending, seen, readers = [((None, path), root)], self._seen, self._readers
        while pending:
            link, value = pending.pop()
            for step, child in readers[type(value)](value):
                kind = type(child)
                if readers[kind] is None or (kind in _CONTAINERS and not child) or id(child) in seen:
                    continue
                seen.add(id(child))
                if isinstance(child, torch.Tensor) and child.is_meta:
                    self.found.append(_path_of((link, step)))
                pending.append(((link, step), child))


def _path_of(link) -> str:
    """From the root's path and a step for each child below it: an attribute's name, or (key,)."""
    steps = []
    while link[0] is not None:
        link, step = link
        if isinstance(step, tuple):
            steps.append(f"[{step[0]!r}]")
        elif step:
            steps.append(f".{step}")
    return link[1] + "".join(reversed(steps))


def _reader_of(kind: type):
    """What lists the children of values of a type, each after the step to it."""
    for held, reader in _READERS:
        if issubclass(kind, held):
            return reader
    return _attributes


def _attributes(value):
    attributes = getattr(value, "__dict__", None)
    return attributes.items() if isinstance(attributes, dict) else ()


def _of_module(module):
    """Its members by their own names, and the rest of its attributes."""
    held = vars(module)
    for kind in _MEMBERS:
        yield from (held.get(kind) or {}).items()
    for name, value in held.items():
        if name not in _MEMBERS:
            yield name, value


def _of_function(function):
    return [("", cell.cell_contents) for cell in function.__closure__ or () if _filled(cell)]


_READERS = (
    (dict, lambda value: [((key,), item) for key, item in list(value.items())]),
    ((list, tuple, set, frozenset), lambda value: [((index,), item) for index, item in enumerate(value)]),
    (torch.nn.Module, _of_module),
    (functools.partial, lambda value: [("", value.func), ("", value.args), ("", value.keywords)]),
    (types.MethodType, lambda value: [("", value.__self__)]),
    (types.FunctionType, _of_function),
)


def _filled(cell) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def left_on_meta(model: torch.nn.Module, skip: tuple = ()) -> list[str]:
    """Paths of all meta tensors that can be reached from ``model``; objects of ``skip`` are not looked into."""
    walk = _Walk(skip)
    walk.visit(model, "model")
    return sorted(path.removeprefix("model.") for path in walk.found)
