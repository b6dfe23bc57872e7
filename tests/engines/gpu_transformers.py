#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""preload.transformers on one GPU beside from_pretrained, and what engines do with the weights.

    gpu_transformers.py PRELOAD WORK [--shapes NAME ...] [--layers N] [--device host --tiny]

Writes checkpoints of Llama-8B's, Qwen3's and Mixtral's shape into WORK (36 GB with all layers; kept,
so that a second run is quicker), serves each, and prints one table: logits and 64 greedy tokens equal,
times of attach and construction, CUDA graphs, torch.compile, two clients of which one is killed, and
memory. PRELOAD_CLIENT_LIBRARY and PYTHONPATH (python/) must be set. With --device host --tiny it goes
through the same steps on a machine without a GPU.
"""

import argparse
import copy
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import daemon
import gpu_table


def prompt(device):
    import torch

    return (torch.arange(1, 65, device=device) * 7 % 500)[None]


def build(model: str, device: str, where: str):
    """from_preload in a process whose CUDA context and transformers modules are there already."""
    import torch
    import transformers
    from preload.transformers import from_preload

    torch.zeros(1, device=device)
    config = transformers.AutoConfig.from_pretrained(model)
    transformers.AutoModelForCausalLM._model_mapping[type(config)]
    began = time.perf_counter()
    made = from_preload(model, device=where)
    return made, (time.perf_counter() - began) * 1000


def run_equal(args) -> None:
    """Logits and tokens, and how long each construction takes."""
    import torch
    import transformers

    served, served_ms = build(args.model, args.torch_device, args.where)
    again_ms = min(build(args.model, args.torch_device, args.where)[1] for _ in range(3))
    began = time.perf_counter()
    loaded = (
        transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype="auto")
        .to(args.torch_device)
        .eval()
    )
    if args.torch_device != "cpu":
        torch.cuda.synchronize()
    loaded_ms = (time.perf_counter() - began) * 1000
    ids = prompt(args.torch_device)
    with torch.inference_mode():
        logits = torch.equal(served(ids).logits, loaded(ids).logits)
        tokens = [
            m.generate(ids, max_new_tokens=64, min_new_tokens=64, do_sample=False) for m in (served, loaded)
        ]
    steps = served.preload_timing.steps
    gpu_table.say(
        {
            "logits": logits,
            "tokens": torch.equal(*tokens) and tokens[0].shape[1] == 128,
            "attach_ms": steps["attach"] + steps["tensors"],
            "evidence": served.preload_info.evidence,
            "bytes": served.preload_info.bytes,
            "first_ms": served_ms,
            "again_ms": again_ms,
            "from_pretrained_ms": loaded_ms,
        }
    )


def blocks_of(model):
    """Part of every layer and the head: no host synchronisation, so that a graph can hold it."""

    def run(hidden):
        for layer in model.model.layers:
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return model.lm_head(model.model.norm(hidden))

    return run


def run_graphs(args) -> None:
    """CUDA graph capture and replay, and torch.compile of a module, over read-only weights."""
    import torch

    model, _ = build(args.model, args.torch_device, args.where)
    run, device = blocks_of(model), args.torch_device
    generator = torch.Generator().manual_seed(1)
    shape = (4, 8, model.config.hidden_size)
    given = torch.randn(shape, generator=generator).to(device, torch.bfloat16)
    result = {}
    with torch.inference_mode():
        expected = run(given)
        if device != "cpu":
            held = torch.zeros_like(given)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                run(held)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = run(held)
            held.copy_(given)
            graph.replay()
            torch.cuda.synchronize()
            result["graph"] = torch.equal(out, expected)
        mlp = model.model.layers[0].mlp
        # The compiler rounds in other places than eager mode does; over a module with memory of its
        # own it makes the same kernels.
        own = copy.deepcopy(mlp)
        result["compiled"] = torch.equal(torch.compile(mlp)(given), torch.compile(own)(given))
    gpu_table.say(result)


def run_loop(args) -> None:
    """A client that computes until it is killed."""
    import torch

    model, _ = build(args.model, args.torch_device, args.where)
    ids = prompt(args.torch_device)
    with torch.inference_mode():
        model(ids)
        print("computing", flush=True)
        while True:
            model(ids)


def run_beside(args) -> None:
    """Outputs before, while and after another client computes and is killed in the middle of it."""
    import torch

    model, _ = build(args.model, args.torch_device, args.where)
    ids = prompt(args.torch_device)
    with torch.inference_mode():
        expected = model(ids).logits.cpu()
        command = [sys.executable, __file__, "--child", "loop", *args.passed]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as other:
            assert other.stdout.readline().strip() == "computing"
            during = [torch.equal(model(ids).logits.cpu(), expected) for _ in range(3)]
            time.sleep(0.3)
            other.send_signal(signal.SIGKILL)
        after = [torch.equal(model(ids).logits.cpu(), expected) for _ in range(3)]
    gpu_table.say({"during": all(during), "after": all(after), "killed": other.returncode == -signal.SIGKILL})


CHILDREN = {"equal": run_equal, "graphs": run_graphs, "loop": run_loop, "beside": run_beside}


class Steps:
    def __init__(self, args):
        self.args, self.rows = args, gpu_table.Rows()

    def child(self, name: str, model: str) -> dict:
        where = "host:0" if self.args.device == "host" else "cuda:0"
        torch_device = "cpu" if self.args.device == "host" else "cuda"
        return gpu_table.child(__file__, "--child", name, model, where, torch_device)

    def equal(self, model: str):
        got = self.child("equal", model)
        figures = (
            "attach to the last tensor {attach_ms:.1f} ms ({evidence}), {bytes:,} bytes; whole construction "
            "{first_ms:.0f} ms, again {again_ms:.0f} ms, from_pretrained {from_pretrained_ms:.0f} ms"
        ).format(**got)
        quick = got["attach_ms"] <= 25 or self.args.device == "host"
        return got["logits"] and got["tokens"] and quick, figures

    def graphs(self, model: str):
        got = self.child("graphs", model)
        graph = got.get("graph", self.args.device == "host")
        return graph and got["compiled"], f"graph equal: {graph}, compiled equal: {got['compiled']}"

    def beside(self, model: str):
        got = self.child("beside", model)
        return all(got.values()), f"outputs equal while the other computes and after its kill -9: {got}"

    def memory(self, served, before_mib: int):
        """Bytes as the daemon and its clients state them; what else the GPU holds."""
        stated = served.status()["bytes"]
        grown = gpu_table.gpu_used_mib() - before_mib
        attached = subprocess.run(
            [self.args.program, "attach", "--json"], capture_output=True, text=True, check=True
        ).stdout
        (client,) = json.loads(attached)["daemons"]
        over = grown - stated / (1 << 20)
        small = over <= 16 or self.args.device == "host"
        return client[
            "bytes"
        ] == stated and small, f"{stated:,} bytes in status and client, GPU {over:.1f} MiB above"

    def shape(self, shape: str) -> None:
        options = ["--tiny"] if self.args.tiny else []
        if self.args.layers:
            options += ["--layers", str(self.args.layers)]
        model = gpu_table.make_model(shape, self.args.work / "models" / shape, *options)
        before = gpu_table.gpu_used_mib()
        serve = ["--model", model, "--layout", "transformers"]
        with daemon.Served(self.args.program, *serve, device=self.args.device) as served:
            self.rows.step(f"{shape}: memory", self.memory, served, before)
            self.rows.step(f"{shape}: equal", self.equal, model)
            if shape == self.args.shapes[0]:
                self.rows.step(f"{shape}: graphs, compile", self.graphs, model)
                self.rows.step(f"{shape}: two clients", self.beside, model)


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        names = ("model", "where", "torch_device")
        passed = sys.argv[3:]
        CHILDREN[sys.argv[2]](argparse.Namespace(**dict(zip(names, passed)), passed=passed))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--shapes", nargs="+", default=["llama8b", "qwen3", "mixtral"])
    parser.add_argument("--layers", type=int)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    daemon.use_directories(args.work)
    steps = Steps(args)
    for shape in args.shapes:
        steps.shape(shape)
    return steps.rows.finish()


if __name__ == "__main__":
    sys.exit(main())
