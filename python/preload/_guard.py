# SPDX-License-Identifier: Apache-2.0
"""Parameters and buffers that refuse, by name, what would write to weights that are shared.

torch knows no read-only memory: a write to it ends the process, or the CUDA context. These types are
torch's own but for the methods that write: what only reads them costs half a microsecond a call and
compiles as ever. Past them go writes that are not calls of the tensor's own methods: through views, by
functions of torch (``torch.relu_(w)``, ``torch.Tensor.add_(w, 1)``, ``inplace=True``, ``_foreach``), and ``out=``.
DistributedDataParallel, which writes to what it wraps, is refused where it begins to.
"""

from __future__ import annotations

import functools

import torch
from torch.nn.parallel import distributed

from .errors import Unsupported

# Change what a tensor says of its memory, not the memory.
_HARMLESS = frozenset(
    "as_strided_ detach_ rename_ requires_grad_ share_memory_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_".split()
)
_OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
_WRITING = sorted(
    name for name in dir(torch.Tensor) if name.endswith("_") and name[0] != "_" and name not in _HARMLESS
) + ["__setitem__", *(f"__i{name}__" for name in _OPERATORS)]
_DATA = torch.Tensor.data
_REQUIRES_GRAD = torch.Tensor.requires_grad


def _refusal(name: str, call: str) -> Unsupported:
    return Unsupported(
        f"{call} would write to {name}, which is shared with a preload daemon and its other clients: take weights "
        "of your own with copy=True; adapters merge without writing in place with safe_merge=True"
    )


def _refusing(call: str):
    def refuse(self, *args, **kwargs):
        raise _refusal(self.preload_name, f"{call}()")

    refuse.__name__ = call
    return refuse


class _Shared:
    """What both have. Given other memory (``data = …``), a tensor is an ordinary one again."""

    preload_name = "a tensor"

    @property
    def data(self):
        return _shared_data(_DATA.__get__(self), self.preload_name)

    @data.setter
    def data(self, value):
        moved = (value.data_ptr(), value.device) != (self.data_ptr(), self.device)
        _DATA.__set__(self, value)
        if moved:
            del self.preload_name
            self.__class__ = self._ordinary

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = self._of(self.detach().clone())
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return self._of(self.detach()).__reduce_ex__(protocol)


class SharedTensor(_Shared, torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl
    _ordinary = torch.Tensor

    @staticmethod
    def _of(tensor):
        return tensor


class SharedParameter(_Shared, torch.nn.Parameter):
    __torch_function__ = torch._C._disabled_torch_function_impl
    _ordinary = torch.nn.Parameter

    def __new__(cls, data=None, requires_grad=True):
        """Code that makes "another of this type" means other memory."""
        return torch.nn.Parameter(data, requires_grad)

    @staticmethod
    def _of(tensor):
        return torch.nn.Parameter(tensor, False)

    @property
    def requires_grad(self):
        return _REQUIRES_GRAD.__get__(self)

    @requires_grad.setter
    def requires_grad(self, value):
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad=True):
        if requires_grad:
            raise _refusal(self.preload_name, "training")
        return self


def _shared_data(tensor: torch.Tensor, name: str) -> SharedTensor:
    data = torch.Tensor._make_subclass(SharedTensor, tensor, False)
    data.preload_name = name
    return data


for _name in _WRITING:
    setattr(_Shared, _name, _refusing(_name))


def _refuse_synchronizing() -> None:
    """DistributedDataParallel broadcasts all that it wraps, in place and past every method."""
    synchronize = getattr(distributed, "_sync_module_states", None)
    if synchronize is None or hasattr(synchronize, "preload_refuses"):
        return

    @functools.wraps(synchronize)
    def refusing(module, *args, params_and_buffers_to_ignore=(), **kwargs):
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if isinstance(tensor, _Shared) and name not in params_and_buffers_to_ignore:
                raise Unsupported(
                    f"DistributedDataParallel would write to {name}, which is shared with a preload daemon and its "
                    "other clients: take weights of your own with copy=True, or name those that are shared to "
                    "DistributedDataParallel._set_params_and_buffers_to_ignore_for_model"
                )
        return synchronize(module, *args, params_and_buffers_to_ignore=params_and_buffers_to_ignore, **kwargs)

    refusing.preload_refuses = True
    distributed._sync_module_states = refusing


def guard(tensor: torch.Tensor, name: str) -> None:
    """Makes a tensor or parameter of torch's own types refuse writes, whoever holds it already."""
    _refuse_synchronizing()
    for shared in (SharedParameter, SharedTensor):
        if type(tensor) is shared._ordinary:
            tensor.__class__ = shared
            tensor.preload_name = name
