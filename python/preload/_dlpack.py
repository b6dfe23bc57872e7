# SPDX-License-Identifier: Apache-2.0
"""DLPack capsules around views that the client library makes and frees."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_void_p, py_object

from . import _library

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = c_int, [c_void_p, c_char_p]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = c_void_p, [c_void_p, c_char_p]

# Kept for the life of the process: capsules point at these bytes.
_NAME = b"dltensor"
_NAME_VERSIONED = b"dltensor_versioned"


@ctypes.CFUNCTYPE(None, c_void_p)
def _destroy(capsule):
    """Frees a view that nobody took: a consumer renames the capsule it takes."""
    for name, versioned in ((_NAME, 0), (_NAME_VERSIONED, 1)):
        if _is_valid(capsule, name):
            _library.library().preload_dlpack_free(_get_pointer(capsule, name), versioned)


def _capsule(status: int, managed: c_void_p, versioned: bool):
    _library.check(status)
    name = _NAME_VERSIONED if versioned else _NAME
    return _new(managed, name, ctypes.cast(_destroy, c_void_p))


def tensor_capsule(pointer: int, index: int, versioned: bool):
    managed = c_void_p()
    status = _library.library().preload_dlpack_tensor(
        pointer, index, int(versioned), ctypes.byref(managed)
    )
    return _capsule(status, managed, versioned)


def slab_capsule(pointer: int, slab: int):
    managed = c_void_p()
    status = _library.library().preload_dlpack_slab(pointer, slab, 0, ctypes.byref(managed))
    return _capsule(status, managed, False)
