#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A command for `preload serve --warmup-exec`, in plain torch: attaches to the shard that was just
loaded, runs a forward pass over it, and leaves what was compiled where the next start finds it.

    preload serve --model DIR --warmup-exec 'python3 examples/warmup_torch.py --compile'

The forward pass is that of a decoder without its attention: enough to show the way. What it found goes
to example.json beside what torch.compile and Triton leave.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import preload.torch
import torch
import torch.nn.functional as F


def gate_and_up(state, layer: str):
    """The fused projection of layout vllm, or the two of the others."""
    fused = state.get(f"{layer}.mlp.gate_up_proj.weight")
    if fused is not None:
        return fused
    return torch.cat([state[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up")])


def make_forward(state, layer: str = "model.layers.0"):
    embedding = state["model.embed_tokens.weight"]
    head = state.get("lm_head.weight", embedding)
    projection, down = gate_and_up(state, layer), state[f"{layer}.mlp.down_proj.weight"]
    norm = state["model.norm.weight"]

    def forward(tokens):
        hidden = F.embedding(tokens, embedding)
        gate, up = F.linear(hidden, projection).chunk(2, dim=-1)
        hidden = hidden + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(hidden, norm.shape, norm), head)

    return forward, embedding.device


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    parser.add_argument("--tokens", type=int, default=64)
    args = parser.parse_args()

    # Of the device that this rank holds: each rank sees its own as number 0.
    state = preload.torch.load(wait=60)
    forward, device = make_forward(state)
    if args.compile:
        forward = torch.compile(forward)
    begin = time.perf_counter()
    with torch.no_grad():
        logits = forward(torch.arange(args.tokens, device=device))
        total = float(logits.float().abs().sum())
    seconds = time.perf_counter() - begin

    found = {"rank": int(os.environ["RANK"]), "device": str(device), "logits": total, "seconds": seconds}
    folder = os.environ.get("PRELOAD_WARMUP_CACHE_DIR")
    if folder:
        path = pathlib.Path(folder) / "example"
        path.mkdir(exist_ok=True)
        (path / f"rank{found['rank']}.json").write_text(json.dumps(found))
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
