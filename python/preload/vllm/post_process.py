# SPDX-License-Identifier: Apache-2.0
"""What vLLM does to weights after loading them, and whether weights that are shared allow it.

Three classes: *none* leaves them as they are; *derives* reads them and writes memory of its own, so
it is run; *in place* writes to them and is refused by name in zero_copy. Each method that is known
was read in vLLM 0.32's source; one that is not known is refused. A guard holds them all to it: a
write to shared memory is refused before it happens.
"""

from __future__ import annotations

import enum
from contextlib import nullcontext

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.platforms import current_platform

from ..errors import Unsupported


class PostProcess(enum.Enum):
    NONE = "none"
    DERIVES = "derives"
    IN_PLACE = "in place"


NONE, DERIVES, IN_PLACE = PostProcess
_BACKENDS = {
    # Unquantized experts. CUTLASS swaps the halves of w13 into a copy, the CPU packs into one.
    "UnquantizedMoeBackend": {
        "TRITON": NONE,
        "BATCHED_TRITON": NONE,
        "FLASHINFER_CUTLASS": DERIVES,
        "CPU": DERIVES,
        "FLASHINFER_TRTLLM": IN_PLACE,
    },
    # Block-quantized FP8 experts. DeepGEMM rewrites both where scales become powers of two.
    "Fp8MoeBackend": {
        "TRITON": NONE,
        "BATCHED_TRITON": NONE,
        "MARLIN": DERIVES,
        "CPU": DERIVES,
        "CPU_W8A8": DERIVES,
    },
    # Packed experts: swizzled or repacked into copies.
    "Mxfp4MoeBackend": {"MARLIN": DERIVES, "TRITON": DERIVES, "TRITON_UNFUSED": DERIVES, "CPU": DERIVES},
}


def _by_backend(backend) -> PostProcess | None:
    return _BACKENDS.get(type(backend).__name__, {}).get(backend.name)


def _block_kernel(kernel) -> PostProcess:
    """Linear kernels of block-quantized FP8."""
    if getattr(kernel, "is_deep_gemm_supported", False) and getattr(kernel, "use_deep_gemm_e8m0", False):
        return IN_PLACE
    return DERIVES


def _plain(method) -> PostProcess:
    return DERIVES if current_platform.is_cpu() else NONE


def _fp8_linear(method) -> PostProcess:
    if method.block_quant:
        return _block_kernel(method.fp8_linear)
    return DERIVES if method.use_marlin else IN_PLACE  # shards are requantized to one scale


def _fp8_experts(method) -> PostProcess | None:
    return _by_backend(method.fp8_backend) if method.block_quant else IN_PLACE


def _w8a8_fp8(scheme) -> PostProcess | None:
    strategy = getattr(scheme.strategy, "value", scheme.strategy)
    if strategy == "block":
        return _block_kernel(scheme.fp8_linear)
    return {"channel": DERIVES, "tensor": IN_PLACE}.get(strategy)


_METHODS = {
    "UnquantizedLinearMethod": _plain,
    "UnquantizedEmbeddingMethod": _plain,
    "UnquantizedFusedMoEMethod": lambda method: _by_backend(method.unquantized_backend),
    # Scales of the KV cache are private to each engine, and end in buffers that it made.
    "BaseKVCacheMethod": lambda method: DERIVES,
    "Fp8KVCacheMethod": lambda method: DERIVES,
    "ModelOptKVCacheMethod": lambda method: DERIVES,
    "CompressedTensorsKVCacheMethod": lambda method: DERIVES,
    "Fp8LinearMethod": _fp8_linear,
    "Fp8MoEMethod": _fp8_experts,
    "GptOssMxfp4MoEMethod": lambda method: _by_backend(method.mxfp4_backend),
    "ModelOptLinearMethod": lambda method: IN_PLACE,
    "ModelOptFp8MoEMethod": lambda method: IN_PLACE,
}
_SCHEMES = {"CompressedTensorsW8A8Fp8": _w8a8_fp8}


def classify(method, layer) -> PostProcess | None:
    """The class of one layer's method; None where it is not known."""
    if getattr(method, "uses_meta_device", False):
        return None  # quantizes while it loads: what is served is something else
    if type(method).__name__ == "CompressedTensorsLinearMethod":
        scheme = layer.scheme
        known = _SCHEMES.get(type(scheme).__name__)
        return known(scheme) if known else None
    known = _METHODS.get(type(method).__name__)
    return known(method) if known else None


def _name_of(method, layer) -> str:
    scheme = getattr(layer, "scheme", None)
    backends = (
        getattr(method, name, None) for name in ("unquantized_backend", "fp8_backend", "mxfp4_backend")
    )
    backend = next((backend.name for backend in backends if backend is not None), None)
    parts = [type(method).__name__, type(scheme).__name__ if scheme is not None else None, backend]
    return " ".join(part for part in parts if part)


def check_methods(model: torch.nn.Module) -> set:
    """Raises Unsupported unless every layer's post-processing leaves shared weights alone; what there is."""
    found = set()
    for name, layer in model.named_modules():
        method = getattr(layer, "quant_method", None)
        if not isinstance(method, QuantizeMethodBase):
            continue
        verdict = classify(method, layer)
        if verdict is IN_PLACE:
            raise Unsupported(
                f"layer {name}: {_name_of(method, layer)} rewrites weights in place after loading, which "
                'shared ones do not allow: use {"mode": "copy"} in --model-loader-extra-config, or '
                "--load-format auto"
            )
        if verdict is None:
            raise Unsupported(
                f"layer {name}: it is not known whether {_name_of(method, layer)} rewrites weights after "
                'loading: use {"mode": "copy"} in --model-loader-extra-config, or --load-format auto'
            )
        found.add(verdict)
    return found


# Operators that are declared to write what they only read.
_ONLY_READ = frozenset({"_C::convert_weight_packed", "_C::convert_scale_packed"})


class _WriteGuard(TorchDispatchMode):
    """Refuses writes of torch operators to the given address ranges, before they happen."""

    def __init__(self, ranges: list):
        super().__init__()
        self._ranges = ranges
        self._written: dict = {}  # operator -> positions and names of the arguments it writes

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        written = self._written.get(func)
        if written is None:
            written = self._written[func] = _written_arguments(func)
        for position, name in written:
            given = args[position] if position < len(args) else kwargs.get(name)
            for tensor in given if isinstance(given, (list, tuple)) else (given,):
                if not isinstance(tensor, torch.Tensor) or not self._is_shared(tensor):
                    continue
                if func is torch.ops.aten.copy_.default and _same_place(tensor, args[1]):
                    return tensor  # onto itself: torch would do nothing either
                raise Unsupported(
                    f"post-processing writes to shared weights ({func}, shape {list(tensor.shape)}): use "
                    '{"mode": "copy"} in --model-loader-extra-config, or --load-format auto'
                )
        return func(*args, **kwargs)

    def _is_shared(self, tensor: torch.Tensor) -> bool:
        if tensor.is_meta or tensor.numel() == 0:
            return False
        address = tensor.data_ptr()
        return any(begin <= address < end for begin, end in self._ranges)


def _written_arguments(func) -> list:
    if func._schema.name in _ONLY_READ:
        return []
    return [
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def _same_place(one: torch.Tensor, other) -> bool:
    return (
        isinstance(other, torch.Tensor)
        and one.data_ptr() == other.data_ptr()
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


def guard_against_writes(ranges: list):
    return _WriteGuard(ranges) if ranges else nullcontext()
