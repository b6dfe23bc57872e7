# SPDX-License-Identifier: Apache-2.0
"""Models built without memory for their weights, and the proof that nothing was left that way."""

from __future__ import annotations

import contextlib
import functools
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


_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set, frozenset, deque})
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
    if isinstance(attributes, dict):
        yield from attributes.items()
    for name in _slots_of(type(value)):
        with contextlib.suppress(AttributeError):  # not set
            yield name, object.__getattribute__(value, name)


@functools.lru_cache(maxsize=None)
def _slots_of(kind: type) -> tuple:
    """Names of a class's slots, as they are stored."""
    return tuple(
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    )


def _of_mapping(mapping):
    for key, item in list(mapping.items()):
        yield (key,), item
        if type(key) not in _PLAIN_KEYS:
            yield (key,), key
    yield from _more_of(mapping)


def _of_sequence(sequence):
    yield from (((index,), item) for index, item in enumerate(sequence))
    yield from _more_of(sequence)


def _more_of(container):
    """What a class of one's own adds to a container."""
    return () if type(container) in _CONTAINERS else _attributes(container)


def _of_module(module):
    """Its members by their own names, and the rest of its attributes."""
    held = vars(module)
    for kind in _MEMBERS:
        yield from (held.get(kind) or {}).items()
    for name, value in held.items():
        if name not in _MEMBERS:
            yield name, value
    yield from _of_class(type(module))
    for name in _slots_of(type(module)):
        with contextlib.suppress(AttributeError):
            yield name, object.__getattribute__(module, name)


@functools.lru_cache(maxsize=None)
def _holders_of_class(kind: type) -> tuple:
    """Classes of a module's own, above which all is torch's."""
    return tuple(base for base in kind.__mro__ if not base.__module__.startswith(("torch.", "builtins")))


def _of_class(kind: type):
    """What a constructor may have left in its class: tensors, and containers of them."""
    for base in _holders_of_class(kind):
        for name, value in vars(base).items():
            if not name.startswith("__") and isinstance(value, (torch.Tensor, *_CONTAINERS)):
                yield name, value


def _of_function(function):
    yield from (("", cell.cell_contents) for cell in function.__closure__ or () if _filled(cell))
    yield from (("", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
    yield from vars(function).items()


_PLAIN_KEYS = frozenset({str, int, bool, float, bytes, type(None), type})
_READERS = (
    ((dict, types.MappingProxyType), _of_mapping),
    ((list, tuple, set, frozenset, deque), _of_sequence),
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


@contextlib.contextmanager
def reads_of_weights(what: str):
    """Names the model whose constructor reads a weight, which has no content yet."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error):
            raise
        raise Unsupported(
            f"the constructor of {what} reads weights before they are there ({error}): load this model from disk"
        ) from error


def left_on_meta(model: torch.nn.Module, skip: tuple = ()) -> list[str]:
    """Paths of all meta tensors that can be reached from ``model``; objects of ``skip`` are not looked into."""
    walk = _Walk(skip)
    walk.visit(model, "model")
    return sorted(path.removeprefix("model.") for path in walk.found)
