#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what transformers holds after from_pretrained: the files of tests/fixtures/transformers-*.
Needs torch and transformers; no GPU.

    record_transformers.py OUT CHECKPOINT... [--dtype TYPE]

CHECKPOINT is a directory that layout_checkpoint.py wrote. OUT/<its name>.json gets, per tensor, its
kind, dtype, shape and the first 32 hex digits of the SHA-256 of its bytes; with --dtype the type is
in the file's name too.
"""

import argparse
import hashlib
import json
import pathlib

import torch


def entry(kind: str, tensor: torch.Tensor) -> list:
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    digest = hashlib.sha256(data).hexdigest()[:32]
    return [kind, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), digest]


def held(model: torch.nn.Module) -> dict:
    """Every name, also where several are one tensor."""
    found = {n: entry("param", t) for n, t in model.named_parameters(remove_duplicate=False)}
    return found | {n: entry("buffer", t) for n, t in model.named_buffers(remove_duplicate=False)}


def as_text(tensors: dict) -> str:
    """JSON, a tensor a line."""
    lines = [f"{json.dumps(n)}: {json.dumps(t, separators=(',', ':'))}" for n, t in tensors.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("checkpoint", type=pathlib.Path, nargs="+")
    parser.add_argument("--dtype", default="auto")
    args = parser.parse_args()
    import transformers

    for directory in args.checkpoint:
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=args.dtype)
        suffix = "" if args.dtype == "auto" else f".{args.dtype}"
        (args.out / f"{directory.name}{suffix}.json").write_text(as_text(held(model)))


if __name__ == "__main__":
    main()
