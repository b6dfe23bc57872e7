# SPDX-License-Identifier: Apache-2.0
"""Element types by safetensors' names: their size, and what NumPy and torch call them."""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    bits: int
    numpy: str  # array-interface type; raw bits where NumPy has no such type
    torch: str  # attribute of the torch module; "" where torch has none


DTYPES = {
    "BOOL": DType(8, "|b1", "bool"),
    "U8": DType(8, "|u1", "uint8"),
    "I8": DType(8, "|i1", "int8"),
    "F8_E5M2": DType(8, "|u1", "float8_e5m2"),
    "F8_E4M3": DType(8, "|u1", "float8_e4m3fn"),
    "F8_E8M0": DType(8, "|u1", "float8_e8m0fnu"),
    "F8_E4M3FNUZ": DType(8, "|u1", "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": DType(8, "|u1", "float8_e5m2fnuz"),
    "I16": DType(16, "<i2", "int16"),
    "U16": DType(16, "<u2", "uint16"),
    "F16": DType(16, "<f2", "float16"),
    "BF16": DType(16, "<u2", "bfloat16"),
    "I32": DType(32, "<i4", "int32"),
    "U32": DType(32, "<u4", "uint32"),
    "F32": DType(32, "<f4", "float32"),
    "F64": DType(64, "<f8", "float64"),
    "I64": DType(64, "<i8", "int64"),
    "U64": DType(64, "<u8", "uint64"),
    "C64": DType(64, "<c8", "complex64"),
    # Packed: two F4 to a byte, four F6 to three. Seen as bytes by NumPy.
    "F4": DType(4, "|u1", "float4_e2m1fn_x2"),
    "F6_E2M3": DType(6, "|u1", ""),
    "F6_E3M2": DType(6, "|u1", ""),
}


def stored_shape(dtype: str, shape: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """The shape in whole elements of memory: packed types count bytes along their last axis."""
    bits = DTYPES[dtype].bits
    if bits % 8 == 0:
        return shape
    if shape and shape[-1] * bits % 8 == 0:
        return (*shape[:-1], shape[-1] * bits // 8)
    return (nbytes,)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
