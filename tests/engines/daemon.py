# SPDX-License-Identifier: Apache-2.0
"""A daemon of the real tool for the scripts of this folder, and small checkpoints to serve."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "python")]


class Served:
    """``preload serve`` with a directory of its own, READY while the block runs."""

    def __init__(self, program: str, *arguments: str, ranks: int = 1, device: str = "host"):
        launcher = os.environ.get("PRELOAD_TEST_MPIRUN", "mpirun --oversubscribe --allow-run-as-root").split()
        start = [*launcher, "-np", str(ranks), "--bind-to", "none"] if ranks > 1 else []
        self._program = program
        self._command = [*start, program, "serve", "--device", device, *arguments]

    def __enter__(self):
        self.log = open(pathlib.Path(os.environ["PRELOAD_SOCKET_DIR"]).parent / "daemon.log", "w+")
        self.process = subprocess.Popen(self._command, stderr=self.log)
        if subprocess.run([self._program, "wait", "--timeout", "120"], stdout=subprocess.DEVNULL).returncode:
            self.process.kill()
            self.process.wait(30)
            self.log.seek(0)
            raise RuntimeError(f"the daemon did not come up:\n{self.log.read()[-2000:]}")
        return self

    def status(self, role: str = "target") -> dict:
        told = subprocess.run([self._program, "status", "--json"], stdout=subprocess.PIPE, check=True)
        return next(found for found in json.loads(told.stdout)["daemons"] if found["role"] == role)

    def wait_until(self, condition, role: str = "target", timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not condition(self.status(role)):
            if time.monotonic() > deadline:
                raise AssertionError(f"after {timeout} s: {self.status(role)}")
            time.sleep(0.05)

    def __exit__(self, *exception):
        subprocess.run([self._program, "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.log.close()


def use_directories(work: pathlib.Path) -> None:
    """Sockets and caches of our own, in ``work``."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "sockets").mkdir(mode=0o700, exist_ok=True)
    os.environ |= {"PRELOAD_SOCKET_DIR": str(work / "sockets"), "PRELOAD_CACHE_ROOT": str(work / "cache")}


SHAPE = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.1,
}


def write_model(directory: pathlib.Path, kind: str, seed: int = 1, **changes) -> str:
    """A small random model: "llama", "qwen3" (tied) or "mixtral" (eight experts); its path."""
    import torch
    import transformers

    configs = {
        "llama": lambda: transformers.LlamaConfig(**{**SHAPE, **changes}),
        "qwen3": lambda: transformers.Qwen3Config(**{**SHAPE, "tie_word_embeddings": True, **changes}),
        "mixtral": lambda: transformers.MixtralConfig(
            **{**SHAPE, "num_local_experts": 8, "num_experts_per_tok": 2, **changes}
        ),
    }
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(configs[kind](), dtype=torch.bfloat16)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=2, max_new_tokens=77)
    model.save_pretrained(directory)
    return str(directory)


def write_eagle(directory: pathlib.Path, seed: int = 3) -> str:
    """An EAGLE draft of one layer for the "llama" model, without embeddings and head; its path."""
    import torch
    from safetensors.torch import save_file

    hidden, heads = SHAPE["hidden_size"], SHAPE["num_attention_heads"] * SHAPE["head_dim"]
    keys, wide = SHAPE["num_key_value_heads"] * SHAPE["head_dim"], SHAPE["intermediate_size"]
    layer = {
        "self_attn.q_proj": (heads, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, heads),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
    }
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        f"layers.0.{name}.weight": torch.randn(shape, generator=generator) * 0.1
        for name, shape in layer.items()
    }
    tensors["layers.0.post_attention_layernorm.weight"] = torch.ones(hidden)
    tensors["fc.weight"] = torch.randn((hidden, 2 * hidden), generator=generator) * 0.1
    directory.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, directory / "model.safetensors")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", **SHAPE}
    (directory / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    return str(directory)
