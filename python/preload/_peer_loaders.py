# SPDX-License-Identifier: Apache-2.0
"""Ways to call other loaders of safetensors files, for bench_peers."""

import importlib.metadata
import importlib.util
import sys
import warnings
from dataclasses import dataclass
from typing import Callable

# What NumPy has no type for.
NEEDS_TORCH = {"BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4"}


class Skipped(Exception):
    """There is nothing to measure here; the text says why."""


@dataclass(frozen=True)
class Way:
    """One loader with one setting. `tensors(files, device, stack)` yields (name, tensor); what must
    stay open while the tensors are used is entered into the stack. With `keeps` a tensor outlives the
    iteration's next step."""

    name: str  # of the Python module
    distribution: str
    setting: str
    keeps: bool
    devices: tuple  # "cuda", "cpu"
    tensors: Callable

    def synchronize(self, device):
        if device.startswith("cuda"):
            import torch

            torch.cuda.synchronize(device)


def has(module):
    return importlib.util.find_spec(module) is not None


def safetensors(files, device, stack):
    if not has("torch"):
        from safetensors.numpy import load_file as load_arrays

        for path in files:
            yield from load_arrays(path).items()
        return
    from safetensors.torch import load_file

    for path in files:
        tensors = load_file(path, device=device)
        for name, tensor in tensors.items():
            # On the CPU these are views of a mapping of which nothing has been read.
            yield name, tensor.clone() if device == "cpu" else tensor


def fastsafetensors(files, device, stack):
    from fastsafetensors import fastsafe_open

    opened = stack.enter_context(fastsafe_open(files, framework="pt", device=device, nogds=True))
    for name in opened.keys():
        yield name, opened.get_tensor(name)


def runai_model_streamer(files, device, stack):
    from runai_model_streamer import SafetensorsStreamer

    streamer = stack.enter_context(SafetensorsStreamer())
    streamer.stream_files(files, device=device, owned=True)
    yield from streamer.get_tensors()


def instanttensor(files, device, stack):
    from instanttensor import safe_open

    yield from stack.enter_context(safe_open(files, framework="pt", device=device)).tensors()


def instanttensor_mmap(files, device, stack):
    from instanttensor import Backend, safe_open

    opened = safe_open(files, framework="pt", device=device, backend=Backend.MMAP, copy=False)
    yield from stack.enter_context(opened).tensors()


BOTH, CUDA = ("cuda", "cpu"), ("cuda",)
WAYS = (
    Way("safetensors", "safetensors", "load_file", True, BOTH, safetensors),
    Way("fastsafetensors", "fastsafetensors", "fastsafe_open, nogds=True", True, BOTH, fastsafetensors),
    Way("runai_model_streamer", "runai-model-streamer", "SafetensorsStreamer, owned=True", True, BOTH,
        runai_model_streamer),
    Way("instanttensor", "instanttensor", "safe_open", True, CUDA, instanttensor),
    Way("instanttensor", "instanttensor", "safe_open, backend=MMAP, copy=False, consumed in place", False,
        CUDA, instanttensor_mmap),
)  # fmt: skip


def version_of(way):
    try:
        return importlib.metadata.version(way.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def prepare(way, device, dtypes):
    """Imports the loader and makes the CUDA context; throws Skipped when that cannot be."""
    if not has(way.name):
        raise Skipped(f"{way.distribution} is not installed for {sys.executable}")
    kind = device.split(":")[0]
    if kind not in way.devices:
        raise Skipped(f"loads to {' or '.join(way.devices)} only")
    needs_torch = way.name != "safetensors" or kind == "cuda" or dtypes & NEEDS_TORCH
    if needs_torch and not has("torch"):
        raise Skipped(f"needs torch here, which is not installed for {sys.executable}")
    warnings.simplefilter("ignore")  # of settings that are meant
    if has("torch"):
        import torch

        if kind == "cuda":
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)
    __import__(way.name)
