#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks reference_slicing.py against what vLLM held: every manifest in tests/fixtures.

Also that it finds faults: a dump of its own passes, and one with a changed word, a missing tensor
or an extra one does not.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "fixtures")
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import layout_checkpoint  # noqa: E402
import reference_slicing  # noqa: E402


def run(*arguments):
    command = [sys.executable, os.path.join(HERE, "reference_slicing.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def check_manifests(root):
    """Every manifest equals the reference; returns how many there are."""
    families = layout_checkpoint.read_families()
    folder = os.path.join(FIXTURES, "vllm-0.32.0")
    count = 0
    for name in sorted(os.listdir(folder)):
        family, dp, tp, pp, experts, rank = re.fullmatch(
            r"(\w+)\.(?:dp(\d+))?tp(\d+)pp(\d+)(ep|rr|)\.r(\d+)\.json", name
        ).groups()
        if family.endswith("_draft"):
            continue  # the reference is of whole models
        if "quantization_config" in families[family]["config"]:
            continue  # the reference cuts floats
        checkpoint = layout_checkpoint.write(root, family, families[family])
        options = argparse.Namespace(
            manifest=os.path.join(folder, name),
            layout="vllm",
            rank=int(rank),
            tp=int(tp),
            pp=int(pp),
            dp=int(dp or 1),
            ep=experts != "",
            round_robin=experts == "rr",
            pipeline_layers=None,
        )
        config, tensors = reference_slicing.read_checkpoint(checkpoint)
        problems, checked = reference_slicing.compare_manifest(config, tensors, options)
        assert checked > 0 and not problems, f"{name}: {problems}"
        count += 1
    return count


def write_dump(path, tensors):
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


def check_dumps(root):
    """Right dumps pass and each kind of fault is found."""
    checkpoint = os.path.join(root, "llama")
    config, tensors = reference_slicing.read_checkpoint(checkpoint)
    dump = os.path.join(root, "dump")
    os.makedirs(dump)
    path = os.path.join(dump, "rank1.safetensors")
    arguments = ("--checkpoint", checkpoint, "--dump", dump, "--tp", "2", "--layout", "hf")
    shares = []
    for rank in range(2):
        share = reference_slicing.Rank(config, tensors, 2, rank, 1, 0).stored_slices()
        shares.append({name: array.copy() for name, array in share.items()})
        write_dump(os.path.join(dump, f"rank{rank}.safetensors"), share)
    result = run(*arguments)
    assert result.returncode == 0, result.stderr

    name = "model.layers.3.mlp.down_proj.weight"
    changed = {**shares[1], name: shares[1][name].copy()}
    changed[name][5, 7] ^= 1
    missing = {n: a for n, a in shares[1].items() if n != name}
    extra = {**shares[1], "more": shares[1][name]}
    reshaped = {**shares[1], name: shares[1][name].T}
    for fault, text in (
        (changed, "differs in 1 elements, first at [5, 7]"),
        (missing, f"{name} is missing"),
        (extra, "more should not be there"),
        (reshaped, f"{name} is BF16"),
    ):
        write_dump(path, fault)
        result = run(*arguments)
        assert result.returncode == 1 and text in result.stderr, (text, result.stderr)
    os.unlink(path)
    result = run(*arguments)
    assert result.returncode == 1 and "is not there" in result.stderr, result.stderr


def main():
    with tempfile.TemporaryDirectory() as root:
        count = check_manifests(root)
        assert count >= 22, f"only {count} manifests"
        check_dumps(root)
    print(f"{count} manifests equal the reference; every kind of fault is found")


if __name__ == "__main__":
    main()
