#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/engines/transformers runs; see there.

transformers_check.py PRELOAD WORK
"""

import argparse
import pathlib
import sys
import warnings

import daemon
import layout_checkpoint
import torch
import transformers

import preload
from preload.transformers import from_preload

# Families whose checkpoints transformers quantizes itself: refused by the method's name.
QUANTIZED = {"deepseek_v3_fp8": "fp8", "qwen3_fp8": "fp8", "gpt_oss_mxfp4": "mxfp4"}
FAMILIES = (
    "llama", "llama_tied", "llama31", "llama_bias", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_odd",
    "qwen3", "qwen3_moe", "gemma2", "gemma3", "phi3", "deepseek_v2", "deepseek_v3", "gpt_oss", "granite", "glm4",
)  # fmt: skip


def reference(directory: str):
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype="auto").eval()


def compare_running(directory: str) -> str:
    """Logits, greedy tokens and generation config beside from_pretrained's; what differs."""
    served, loaded = from_preload(directory, device="host:0"), reference(directory)
    prompt = torch.arange(1, 33)[None] * 7 % 900
    with torch.inference_mode():
        if not torch.equal(served(prompt).logits, loaded(prompt).logits):
            return "logits differ"
        tokens = [
            model.generate(prompt, max_new_tokens=64, min_new_tokens=64, do_sample=False)
            for model in (served, loaded)
        ]
    if tokens[0].shape[1] != 96 or not torch.equal(*tokens):
        return "tokens differ"
    if served.generation_config.to_dict() != loaded.generation_config.to_dict():
        return "generation configs differ"
    print(f"  {type(served).__name__}: {served.preload_timing}")
    return ""


def held(model) -> dict:
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {
        name: (t.dtype, tuple(t.shape), t.detach().contiguous().flatten().view(torch.uint8))
        for name, t in tensors
    }


def compare_held(directory: str) -> str:
    served, loaded = held(from_preload(directory, device="host:0")), held(reference(directory))
    differing = sorted(set(served) ^ set(loaded))
    for name in set(served) & set(loaded):
        (dtype, shape, raw), (other_dtype, other_shape, other_raw) = served[name], loaded[name]
        if dtype != other_dtype or shape != other_shape or not torch.equal(raw, other_raw):
            differing.append(name)
    return f"{len(differing)} differ: {', '.join(differing[:5])}" if differing else ""


def refusal(directory: str, method: str) -> str:
    try:
        from_preload(directory, device="host:0")
    except preload.Unsupported as error:
        return "" if method in str(error) else f"refused otherwise: {error}"
    return "was not refused"


def check(name: str, program: str, directory: str, layout: str, comparison, *arguments) -> bool:
    with daemon.Served(program, "--model", directory, "--layout", layout):
        try:
            text = comparison(directory, *arguments)
        except Exception as error:  # noqa: BLE001  the others are tried, too
            text = f"{type(error).__name__}: {error}"
    print(f"{name}: {text or 'ok'}", flush=True)
    return not text


def mismatches(program: str, work: pathlib.Path) -> bool:
    """Other files, and a model of other shapes under trust, are refused with what differs."""
    mine, other = str(work / "llama"), daemon.write_model(work / "other", "llama", seed=2)
    narrow = daemon.write_model(work / "narrow", "llama", intermediate_size=256, num_hidden_layers=5)
    with daemon.Served(program, "--model", mine, "--layout", "transformers"):
        try:
            from_preload(other, device="host:0")
            return False
        except preload.TensorMismatch:
            return False
        except preload.Mismatch:
            pass
        try:
            from_preload(narrow, device="host:0", trusted=True)
            return False
        except preload.TensorMismatch as error:
            return (
                "model.layers.4.mlp.down_proj.weight" in error.missing
                and error.shapes["model.layers.0.mlp.down_proj.weight"] == ((256, 256), (256, 512))
                and not error.extra
            )


def arguments(program: str, work: pathlib.Path) -> bool:
    """The caller's config stays as it was; what must be served is said once, by the files or by expect."""
    mine = str(work / "llama")
    config = transformers.AutoConfig.from_pretrained(mine)
    config._attn_implementation = "eager"
    before = config.to_dict()
    with daemon.Served(program, "--model", mine, "--layout", "transformers") as served:
        key = served.status()["key"]
        model = from_preload(
            mine, device="host:0", config=config, attn_implementation="sdpa", trusted=True, expect=key
        )
        unchanged = config.to_dict() == before and config._attn_implementation == "eager"
        for options, error in (
            ({"trusted": True, "expect": "0" * 64}, preload.Mismatch),
            ({"expect": key}, preload.UsageError),
        ):
            try:
                from_preload(mine, device="host:0", **options)
                return False
            except error:
                pass
        return unchanged and model.config is not config and model.config._attn_implementation == "sdpa"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    daemon.use_directories(args.work)
    ok = []
    for kind in ("llama", "qwen3", "mixtral"):
        directory = daemon.write_model(args.work / kind, kind)
        ok.append(check(kind, args.program, directory, "transformers", compare_running))
    ok.append(mismatches(args.program, args.work))
    print(f"mismatches: {'ok' if ok[-1] else 'FAILED'}")
    ok.append(arguments(args.program, args.work))
    print(f"arguments: {'ok' if ok[-1] else 'FAILED'}")
    for family in FAMILIES:
        directory = layout_checkpoint.write_family(str(args.work / "families"), family)
        ok.append(check(family, args.program, directory, "transformers", compare_held))
    for family, method in QUANTIZED.items():
        directory = layout_checkpoint.write_family(str(args.work / "families"), family)
        ok.append(check(family, args.program, directory, "hf", refusal, method))
    print(
        f"transformers {transformers.__version__}, torch {torch.__version__}: {sum(ok)} of {len(ok)} passed"
    )
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
