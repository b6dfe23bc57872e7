# SPDX-License-Identifier: Apache-2.0
"""Models built without memory for their weights, and the proof that nothing was left that way."""

from __future__ import annotations

import functools
import re
import types
from collections import OrderedDict, deque

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils._device import DeviceContext

from .errors import Unsupported

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

    def __exit__(self, kind, error, traceback):
        self._hook.remove()
        super().__exit__(kind, error, traceback)
        if isinstance(error, (RuntimeError, TypeError)) and re.search(r"\bmeta\b", str(error)):
            raise Unsupported(
                f"the constructor of {_constructed(traceback)} reads values of a weight that is not there yet "
                f"({str(error).splitlines()[0]}): this model cannot be built around weights that are there, load "
                "it from disk"
            ) from error

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _WITHOUT_CONTENT and (not kwargs or kwargs.get("device") is None):
            return func(*args, **{**(kwargs or {}), "device": "meta"})
        return super().__torch_function__(func, types, args, kwargs)


def _constructed(traceback) -> str:
    """Class and module of what was being constructed when an error arose, the innermost."""
    found = "the model"
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        owner = frame.f_locals.get("self")
        if frame.f_code.co_name == "__init__" and isinstance(owner, torch.nn.Module):
            found = f"{type(owner).__qualname__} ({type(owner).__module__})"
    return found


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


_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set, frozenset, deque, types.MappingProxyType})
_MEMBERS = ("_parameters", "_buffers", "_modules")


class _Readers(dict):
    """By type, what reads its values' children; None for a leaf. ``fresh``: types not looked at yet."""

    def __init__(self, leaves: tuple):
        super().__init__()
        self._leaves = leaves
        self.fresh: set = set()

    def __missing__(self, kind: type):
        if issubclass(kind, self._leaves):
            self[kind] = None
            return None
        self.fresh.add(kind)
        reader = self[kind] = _reader_of(kind)
        return reader


class _Walk:
    """Everything reachable from a model through attributes, slots and classes' attributes, containers and
    their keys, closures, defaults and partials.

    A value's path is a chain of links, made into text for what is found alone: there are thousands. Most
    children are leaves or empty containers (a module has ten for hooks), so they are left out first.
    """

    def __init__(self, skip: tuple):
        self._readers = _Readers((*_LEAVES, *skip))
        self._seen: set = set()
        self._classes: set = {object, torch.nn.Module, torch.Tensor}  # looked at
        self.found: list = []

    def visit(self, root, path: str) -> None:
        pending, seen, readers = [((None, path), root)], self._seen, self._readers
        while pending:
            link, value = pending.pop()
            children = readers[type(value)](value)
            if type(value) in readers.fresh:
                readers.fresh.remove(type(value))
                children = [*children, *_of_class(type(value), self._classes)]
            for step, child in children:
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
    readers = [next((reader for held, reader in _READERS if issubclass(kind, held)), None)]
    if kind.__dictoffset__ and not issubclass(kind, torch.nn.Module):  # a subclass of list has one, too
        readers.append(_attributes)
    if slots := _slots_of(kind):
        readers.append(lambda value: [(name, slot.__get__(value)) for name, slot in slots if _is_set(slot, value)])
    readers = [reader for reader in readers if reader is not None]
    if len(readers) == 1:
        return readers[0]
    return lambda value: [child for reader in readers for child in reader(value)]


def _attributes(value):
    attributes = getattr(value, "__dict__", None)
    return list(attributes.items()) if isinstance(attributes, dict) else ()


def _slots_of(kind: type) -> list:
    return [
        (name, member)
        for held in kind.__mro__
        if "__slots__" in vars(held)
        for name, member in vars(held).items()
        if isinstance(member, types.MemberDescriptorType)
    ]


def _is_set(slot, value) -> bool:
    try:
        slot.__get__(value)
    except AttributeError:
        return False
    return True


def _of_class(kind: type, looked_at: set):
    """What a class itself holds, and those it is made from. Not their methods: those were there before the
    model."""
    for held in kind.__mro__:
        if held in looked_at:
            continue
        looked_at.add(held)
        for name, value in list(vars(held).items()):
            if name[:2] != "__" and isinstance(value, (torch.Tensor, torch.nn.Module, *_CONTAINERS)):
                yield f"<{held.__qualname__}>.{name}", value


def _of_module(module):
    """Its members by their own names, and the rest of its attributes."""
    held = vars(module)
    for kind in _MEMBERS:
        yield from (held.get(kind) or {}).items()
    for name, value in held.items():
        if name not in _MEMBERS:
            yield name, value


def _of_function(function):
    held = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [("", value) for value in held]


_READERS = (
    ((dict, types.MappingProxyType), lambda value: [((key,), item) for key, item in _items(value)]),
    ((list, tuple, set, frozenset, deque), lambda value: [((index,), item) for index, item in enumerate(value)]),
    (torch.nn.Module, _of_module),
    (functools.partial, lambda value: [("", value.func), ("", value.args), ("", value.keywords)]),
    (types.MethodType, lambda value: [("", value.__self__)]),
    (types.FunctionType, _of_function),
)


def _items(mapping):
    """Its values by their keys, and keys that may hold something by themselves."""
    pairs = list(mapping.items())
    return pairs + [("key", key) for key, _ in pairs if not isinstance(key, (str, int))]


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
