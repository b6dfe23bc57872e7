# SPDX-License-Identifier: Apache-2.0
"""One tensor of an attached shard."""

from __future__ import annotations

from . import _dlpack, _torch
from ._dtypes import DTYPES, row_major, stored_shape
from ._shard import Record, Shard

_DL_CPU, _DL_CUDA = 1, 2


class _HostMemory:
    """What NumPy takes as an array's base: keeps the shard mapped as long as the array lives."""

    __slots__ = ("__array_interface__", "_shard")

    def __init__(self, shard: Shard, interface: dict):
        self._shard = shard
        self.__array_interface__ = interface


class Tensor:
    """A named tensor, mapped where the daemon put it. Read-only unless ``is_private``."""

    __slots__ = ("_record", "_shard")

    def __init__(self, shard: Shard, record: Record):
        self._shard, self._record = shard, record

    name = property(lambda self: self._record.name)
    dtype = property(lambda self: self._record.dtype, doc='safetensors\' name, e.g. "BF16"')
    shape = property(lambda self: self._record.shape)
    strides = property(lambda self: self._record.strides, doc="in elements")
    nbytes = property(lambda self: self._record.nbytes, doc="bytes of its extent in memory")
    is_buffer = property(lambda self: self._record.is_buffer, doc="a parameter otherwise")
    is_private = property(lambda self: self._record.is_private, doc="a writable copy of our own")

    @property
    def hash(self) -> str:
        """32 hex digits over the row-major bytes."""
        return self._record.hash[:32].decode()

    @property
    def alias_of(self) -> str | None:
        """The name of the tensor that this one is another name of, or None."""
        alias = self._record.alias_of
        return None if alias < 0 else self._shard.names[alias]

    @property
    def data_ptr(self) -> int:
        """Address of the first element: of host or of device memory."""
        return self._record.address

    @property
    def is_cuda(self) -> bool:
        return self._shard.info.cuda_device >= 0

    def numpy(self):
        """A zero-copy array on host memory, read-only unless private.

        Types that NumPy lacks come as raw bits: uint16 for BF16, uint8 for FP8, bytes for packed FP4
        and FP6. Raises TypeError for GPU memory.
        """
        import numpy

        record = self._record
        if self.is_cuda:
            raise TypeError(
                f"{record.name} is in GPU memory, which NumPy cannot see: use torch() or DLPack"
            )
        dtype = DTYPES[record.dtype]
        shape, strides = record.shape, record.strides
        if dtype.bits % 8 != 0:
            shape = stored_shape(record.dtype, shape, record.nbytes)
            strides = row_major(shape)
        itemsize = max(1, dtype.bits // 8)
        interface = {
            "version": 3,
            "typestr": dtype.numpy,
            "shape": shape,
            "strides": tuple(stride * itemsize for stride in strides),
            "data": (record.address, not record.is_private),
        }
        return numpy.asarray(_HostMemory(self._shard, interface))

    def torch(self):
        """A zero-copy torch tensor on host or GPU memory; one object for all names of a tensor.

        torch knows no read-only tensors: a write to a shared one faults.
        """
        return _torch.build_one(self._shard, self._record)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A DLPack capsule. The memory is never being written, so any ``stream`` is fine."""
        if copy:
            raise BufferError("preload hands out views: copy the tensor on the consumer's side")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"{self.name} is on DLPack device {self.__dlpack_device__()}")
        versioned = max_version is not None and max_version[0] >= 1
        if DTYPES[self._record.dtype].bits % 8 != 0:
            raise BufferError(f"{self.name} is packed {self.dtype}: DLPack cannot express it")
        return _dlpack.tensor_capsule(self._shard.pointer, self._record.index, versioned)

    def __dlpack_device__(self):
        if self.is_cuda:
            return (_DL_CUDA, self._shard.info.cuda_device)
        return (_DL_CPU, 0)

    def __repr__(self) -> str:
        kind = "buffer" if self.is_buffer else "param"
        access = "private" if self.is_private else "shared"
        return f"<preload.Tensor {self.name} {self.dtype} {list(self.shape)} {kind} {access}>"
