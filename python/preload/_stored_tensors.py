# SPDX-License-Identifier: Apache-2.0
"""What safetensors files hold, read apart from any loader, to compare a loader's tensors with."""

import json
from dataclasses import dataclass

SAMPLE_BYTES = 256

# By the names that NumPy and torch give them.
DTYPE_NAMES = {
    "BOOL": {"bool"}, "U8": {"uint8"}, "I8": {"int8"}, "U16": {"uint16"}, "I16": {"int16"}, "U32": {"uint32"},
    "I32": {"int32"}, "U64": {"uint64"}, "I64": {"int64"}, "F16": {"float16"}, "BF16": {"bfloat16"},
    "F32": {"float32"}, "F64": {"float64"}, "C64": {"complex64"}, "F8_E4M3": {"float8_e4m3fn"},
    "F8_E5M2": {"float8_e5m2"}, "F8_E8M0": {"float8_e8m0fnu"},
}  # fmt: skip


class Mismatch(Exception):
    """A loader gave something else than the files hold; names the tensor."""


@dataclass(frozen=True)
class Stored:
    path: str
    dtype: str
    shape: tuple
    offset: int
    size: int  # in bytes


def read_header(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        yield name, Stored(path, entry["dtype"], tuple(entry["shape"]), 8 + length + begin, end - begin)


def sample_offsets(size):
    """Where first, middle and last samples begin; the whole of what is short."""
    if size <= 3 * SAMPLE_BYTES:
        return [(0, size)] if size else []
    return [(at, SAMPLE_BYTES) for at in (0, (size - SAMPLE_BYTES) // 2, size - SAMPLE_BYTES)]


def bytes_of(tensor, begin, size):
    """Some bytes of a NumPy array or a torch tensor in row-major order."""
    flat = tensor.reshape(-1)
    if type(tensor).__module__.split(".")[0] == "torch":
        import torch

        return bytes(flat.view(torch.uint8)[begin : begin + size].cpu().tolist())
    import numpy as np

    return flat.view(np.uint8)[begin : begin + size].tobytes()


class StoredTensors:
    def __init__(self, files):
        self.tensors = {name: stored for path in files for name, stored in read_header(path)}
        self.total_bytes = sum(stored.size for stored in self.tensors.values())
        self._files = {}

    def dtypes(self):
        return {stored.dtype for stored in self.tensors.values()}

    def check_shapes(self, shapes):
        """Every tensor came, with its shape."""
        missing = [name for name in self.tensors if name not in shapes]
        if missing:
            raise Mismatch(f"{len(missing)} tensors did not come, {missing[0]} among them")
        for name, shape in shapes.items():
            self._check_shape(name, shape)

    def check(self, name, tensor):
        """Dtype, shape and samples of the bytes of one tensor."""
        self._check_shape(name, tuple(tensor.shape))
        stored = self.tensors[name]
        dtype = str(tensor.dtype).split(".")[-1]
        if dtype not in DTYPE_NAMES.get(stored.dtype, {dtype}):
            raise Mismatch(f"tensor {name}: dtype {dtype}, in the file {stored.dtype}")
        for begin, size in sample_offsets(stored.size):
            if bytes_of(tensor, begin, size) != self._read(stored, begin, size):
                raise Mismatch(f"tensor {name}: bytes {begin} to {begin + size} differ from those of {stored.path}")

    def _check_shape(self, name, shape):
        if name not in self.tensors:
            raise Mismatch(f"tensor {name}: the files have none of this name")
        stored = self.tensors[name]
        if shape != stored.shape:
            raise Mismatch(f"tensor {name}: shape {list(shape)}, in the file {list(stored.shape)}")

    def _read(self, stored, begin, size):
        file = self._files.get(stored.path)
        if file is None:
            file = self._files[stored.path] = open(stored.path, "rb")
        file.seek(stored.offset + begin)
        return file.read(size)
