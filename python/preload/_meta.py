# SPDX-License-Identifier: Apache-2.0
"""Models built without memory for their weights, and the proof that nothing was left that way."""

from __future__ import annotations

import functools
import types

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

_WITHOUT_CONTENT = frozenset({torch.empty, torch.empty_strided})
_LARGE_BYTES = 1 << 20


class WeightsOnMeta(TorchFunctionMode):
    """Builds models whose weights take no memory, while what their constructors compute is real.

    What is allocated without content goes to meta, and so does a large parameter as soon as it is
    registered, whatever it was filled with. Rotary tables, scales and expert maps come out as the
    constructor makes them, on the current device. Whoever asks for a device by name gets that device.
    """

    def __enter__(self):
        self._hook = register_module_parameter_registration_hook(_to_meta)
        return super().__enter__()

    def __exit__(self, *exception):
        self._hook.remove()
        return super().__exit__(*exception)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _WITHOUT_CONTENT and kwargs.get("device") is None:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


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


class _Walk:
    """Everything reachable from a model through attributes, containers, closures and partials."""

    def __init__(self, skip: tuple):
        self._skip = (*_LEAVES, *skip)
        self._seen: set = set()
        self.found: list = []

    def visit(self, root, path: str) -> None:
        pending = [(root, path)]
        while pending:
            value, path = pending.pop()
            if isinstance(value, self._skip) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            if isinstance(value, torch.Tensor) and value.is_meta:
                self.found.append(path)
            pending.extend(_children(value, path))


def _children(value, path: str):
    """What ``value`` holds, each with the path to it."""
    if isinstance(value, dict):
        return [(item, f"{path}[{key!r}]") for key, item in list(value.items())]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, torch.nn.Module):
        held = dict(vars(value))
        children = []
        for kind in ("_parameters", "_buffers", "_modules"):
            for name, item in (held.pop(kind, None) or {}).items():
                children.append((item, f"{path}.{name}"))
        return [*children, *((item, f"{path}.{name}") for name, item in held.items())]
    if isinstance(value, functools.partial):
        return [(value.func, path), (value.args, path), (value.keywords, path)]
    if isinstance(value, types.MethodType):
        return [(value.__self__, path)]
    if isinstance(value, types.FunctionType):
        return [(cell.cell_contents, path) for cell in value.__closure__ or () if _filled(cell)]
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return []
    return [(item, f"{path}.{name}") for name, item in list(attributes.items())]


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
