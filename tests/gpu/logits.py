#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares an attached model with transformers' own loading, bit for bit.

    logits.py reference MODEL_DIR OUT      from_pretrained; saves the logits
    logits.py attach MODEL_DIR OUT         attaches, builds on meta, assigns, compares
    logits.py hold MODEL_DIR OUT           the same, prints "attached", and compares again when a
                                           line comes in on stdin
    logits.py write                        writes to a shared tensor; exit 42 when the GPU faults

attach, hold and write find the daemon by $PRELOAD_SOCKET_DIR. Each prints one JSON object, and
exits 1 when logits differ in a single bit.
"""

import argparse
import json
import sys
import time

import torch
import transformers

LENGTH = 64


def prompt() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 128000, (2, LENGTH), generator=generator).to("cuda")


def logits_of(model) -> torch.Tensor:
    with torch.inference_mode():
        return model(prompt()).logits.cpu()


def build_on_meta(directory: str):
    config = transformers.AutoConfig.from_pretrained(directory)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return model.eval()


def assign(model, tensors: dict) -> None:
    """Puts the served tensors in place of the model's parameters; nothing may stay on meta."""
    model.load_state_dict(tensors, strict=True, assign=True)
    # What the checkpoint does not hold is computed here, as transformers does.
    rotary = type(model.model.rotary_emb)
    model.model.rotary_emb = rotary(config=model.config, device=torch.device("cuda"))
    left = [name for name, t in [*model.named_parameters(), *model.named_buffers()] if t.is_meta]
    if left:
        raise SystemExit(f"left on meta: {left}")


def attach_model(directory: str):
    import preload

    torch.zeros(1, device="cuda")  # the engine's context is there before it attaches
    start = time.perf_counter()
    shard = preload.attach(gpu=0)
    tensors = shard.torch()
    attached = time.perf_counter()
    model = build_on_meta(directory)
    built = time.perf_counter()
    assign(model, tensors)
    assigned = time.perf_counter()
    times = {
        "tensors": len(tensors),
        "attach_ms": round((attached - start) * 1000, 2),
        "build_ms": round((built - attached) * 1000, 2),
        "assign_ms": round((assigned - built) * 1000, 2),
    }
    return shard, model, times


def report(result: dict) -> None:
    print(json.dumps(result), flush=True)
    if not result.get("equal", True):
        sys.exit(1)


def run_reference(directory: str, out: str) -> None:
    start = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
    model = model.to("cuda").eval()
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    logits = logits_of(model)
    torch.save(logits, out)
    report({"from_pretrained_s": round(took, 3), "finite": bool(torch.isfinite(logits).all())})


def run_attach(directory: str, out: str, hold: bool) -> None:
    shard, model, times = attach_model(directory)
    expected = torch.load(out)
    equal = torch.equal(logits_of(model), expected)
    if hold:
        print("attached", flush=True)
        if not sys.stdin.readline():
            sys.exit(1)
        equal = equal and torch.equal(logits_of(model), expected)
    report({**times, "bytes": shard.info.bytes, "equal": equal})


def run_write() -> None:
    import preload

    tensor = next(iter(preload.attach(gpu=0).torch().values()))
    try:
        tensor.view(-1)[:1024].fill_(1.0)
        torch.cuda.synchronize()
    except RuntimeError as error:  # torch.AcceleratorError is one
        print(json.dumps({"fault": str(error).splitlines()[0]}), flush=True)
        sys.exit(42)
    print(json.dumps({"fault": None}), flush=True)
    sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("reference", "attach", "hold", "write"))
    parser.add_argument("model", nargs="?")
    parser.add_argument("out", nargs="?")
    args = parser.parse_args()
    if args.mode == "write":
        run_write()
    elif args.mode == "reference":
        run_reference(args.model, args.out)
    else:
        run_attach(args.model, args.out, hold=args.mode == "hold")


if __name__ == "__main__":
    main()
