# SPDX-License-Identifier: Apache-2.0
"""Finds libpreload_client and declares its C ABI (include/preload/client.h)."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

from .errors import OK, Error, error_of

ABI_VERSION = 1
NOT_FOUND = 10
MAX_DIMS = 8
_SONAME = "libpreload_client.so.1"


class AttachOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("socket_dir", c_char_p),
        ("device", c_char_p),
        ("slot", c_char_p),
        ("role", c_char_p),
        ("expect_json", c_char_p),
        ("client_name", c_char_p),
        ("connect_timeout_ms", c_int32),
        ("wait_timeout_ms", c_int32),
        ("mode", c_int32),
        ("base_address", c_uint64),
        ("socket_path", c_char_p),
        ("absent_timeout_ms", c_int32),
        ("allow_uids", c_char_p),
    ]


class Daemon(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("state", c_int32),
        ("memory", c_int32),
        ("cuda_device", c_int32),
        ("pid", c_int32),
        ("bytes", c_uint64),
        ("generation", c_uint64),
        ("device", c_char_p),
        ("slot", c_char_p),
        ("role", c_char_p),
        ("job", c_char_p),
        ("model", c_char_p),
        ("key", c_char_p),
        ("text", c_char_p),
    ]


class AttachmentInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_char_p),
        ("slot", c_char_p),
        ("role", c_char_p),
        ("key", c_char_p),
        ("metadata_json", c_char_p),
        ("generation", c_uint64),
        ("bytes", c_uint64),
        ("tensor_count", c_uint64),
        ("slab_count", c_uint32),
        ("memory", c_int32),
        ("cuda_device", c_int32),
        ("global_rank", c_int32),
        ("evidence", c_char_p),
        ("base_address", c_uint64),
        ("range_bytes", c_uint64),
        ("is_copy", c_int32),
    ]


class Slab(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("is_private", c_int32),
    ]


class TensorRecord(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_void_p),
        ("dtype", c_void_p),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("slab_offset", c_uint64),
        ("slab", c_uint32),
        ("ndim", c_uint32),
        ("shape", c_int64 * MAX_DIMS),
        ("strides", c_int64 * MAX_DIMS),
        ("is_buffer", c_int32),
        ("is_private", c_int32),
        ("alias_of", c_int64),
        ("hash", ctypes.c_char * 33),
    ]


def _candidates() -> list[str]:
    """Where the library may be, best first: beside this file, the build tree, the prefix."""
    here = Path(__file__).resolve().parent
    beside = [here / _SONAME, here / "libpreload_client.so"]
    builds = here.parent.parent.glob("build/*/src/" + _SONAME)
    newest_first = sorted(builds, key=lambda path: path.stat().st_mtime, reverse=True)
    prefixes = [p / d / _SONAME for p in here.parents for d in (".", "lib", "lib64")]
    found = [str(path) for path in [*beside, *newest_first, *prefixes] if path.is_file()]
    return [*found, _SONAME]  # the bare name: what the dynamic linker knows


class Artifact(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("metadata", c_char_p),
        ("handle", c_void_p),
    ]


def _open() -> ctypes.CDLL:
    given = os.environ.get("PRELOAD_CLIENT_LIBRARY")
    tried = [given] if given else _candidates()
    reasons = []
    for path in tried:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError(
        "libpreload_client was not found: set PRELOAD_CLIENT_LIBRARY to its path, or install it "
        "where the dynamic linker looks (" + "; ".join(reasons) + ")"
    )


def _declare(lib: ctypes.CDLL) -> None:
    attachment = c_void_p
    prototypes = {
        "preload_client_abi_version": (c_uint32, []),
        "preload_last_error": (c_char_p, []),
        "preload_last_error_fields": (c_char_p, []),
        "preload_attach": (c_int, [POINTER(AttachOptions), POINTER(c_void_p)]),
        "preload_find_daemon": (c_int, [POINTER(AttachOptions), POINTER(Daemon)]),
        "preload_put_artifact": (
            c_int,
            [POINTER(AttachOptions), c_char_p, c_char_p, c_char_p, c_uint64],
        ),
        "preload_get_artifact": (c_int, [POINTER(AttachOptions), c_char_p, POINTER(Artifact)]),
        "preload_free_artifact": (None, [POINTER(Artifact)]),
        "preload_detach": (None, [attachment]),
        "preload_get_info": (c_int, [attachment, POINTER(AttachmentInfo)]),
        "preload_get_slab": (c_int, [attachment, c_uint32, POINTER(Slab)]),
        "preload_get_tensors": (c_int, [attachment, POINTER(TensorRecord), c_uint64]),
        "preload_dlpack_tensor": (c_int, [attachment, c_uint64, c_int, POINTER(c_void_p)]),
        "preload_dlpack_slab": (c_int, [attachment, c_uint32, c_int, POINTER(c_void_p)]),
        "preload_dlpack_free": (None, [c_void_p, c_int]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, opened at first use and kept for the life of the process."""
    lib = _open()
    _declare(lib)
    found = lib.preload_client_abi_version()
    if found != ABI_VERSION:
        raise ImportError(
            f"{lib._name} has ABI version {found}, this package needs {ABI_VERSION}: install the "
            "package that came with it"
        )
    return lib


def last_error(status: int) -> Error:
    """The exception for what this thread's last call said."""
    lib = library()
    text = lib.preload_last_error().decode("utf-8", "replace")
    return error_of(status, text, lib.preload_last_error_fields().decode("utf-8", "replace"))


def check(status: int) -> None:
    if status != OK:
        raise last_error(status)
