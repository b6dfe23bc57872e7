#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares an attached model with transformers' own loading, bit for bit.

    logits.py reference MODEL_DIR OUT      from_pretrained; saves the logits
    logits.py attach MODEL_DIR OUT         attaches, builds on meta, assigns, compares
    logits.py hold MODEL_DIR OUT           the same, prints "attached", and compares again when a
                                           line comes in on stdin
    logits.py write                        writes to a shared tensor; exit 42 when the GPU faults

Any causal model of transformers, served in the layout hf where it holds the stored names, else in
the layout transformers. --device host takes a daemon of `--device host` and computes on the CPU.

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


def prompt(model) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, model.config.vocab_size, (2, LENGTH), generator=generator)
    return tokens.to(model.device)


def logits_of(model) -> torch.Tensor:
    with torch.inference_mode():
        return model(prompt(model)).logits.cpu()


def build_on_meta(directory: str):
    config = transformers.AutoConfig.from_pretrained(directory)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=config.dtype)
    return model.eval()


def assign(model, tensors: dict, device: str) -> None:
    """Puts the served tensors in place of the model's parameters; nothing may stay on meta."""
    model.load_state_dict(tensors, strict=True, assign=True)
    # What no checkpoint holds is computed here, as from_pretrained does: on the CPU, then moved.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=model.config).to(device)
    left = [name for name, t in [*model.named_parameters(), *model.named_buffers()] if t.is_meta]
    if left:
        raise SystemExit(f"left on meta: {left}")


def attach_model(directory: str, device: str):
    import preload

    torch.zeros(1, device=device)  # the engine's context is there before it attaches
    start = time.perf_counter()
    shard = preload.attach(device="host:0" if device == "cpu" else "cuda:0")
    tensors = shard.torch()
    attached = time.perf_counter()
    model = build_on_meta(directory)
    built = time.perf_counter()
    assign(model, tensors, device)
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


def run_reference(directory: str, out: str, device: str) -> None:
    start = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    model = model.to(device).eval()
    if device != "cpu":
        torch.cuda.synchronize()
    took = time.perf_counter() - start
    logits = logits_of(model)
    torch.save(logits, out)
    # A model that does not repeat its own logits could not be compared with: that is no pass.
    repeats = torch.equal(logits, logits_of(model))
    finite = bool(torch.isfinite(logits).all())
    report({"from_pretrained_s": round(took, 3), "finite": finite, "equal": repeats and finite})


def run_attach(directory: str, out: str, device: str, hold: bool) -> None:
    shard, model, times = attach_model(directory, device)
    expected = torch.load(out)
    equal = torch.equal(logits_of(model), expected)
    if hold:
        print("attached", flush=True)
        if not sys.stdin.readline():
            sys.exit(1)
        equal = equal and torch.equal(logits_of(model), expected)
    layout = shard.info.metadata["layout"]
    report({**times, "layout": layout, "bytes": shard.info.bytes, "equal": equal})


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
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    args = parser.parse_args()
    device = "cpu" if args.device == "host" else args.device
    if args.mode == "write":
        run_write()
    elif args.mode == "reference":
        run_reference(args.model, args.out, device)
    else:
        run_attach(args.model, args.out, device, hold=args.mode == "hold")


if __name__ == "__main__":
    main()
