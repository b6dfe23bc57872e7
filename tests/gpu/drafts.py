#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves every kind of draft beside its target from GPU memory, attaches both in torch, and compares
the draft's tensors with what a real vLLM held for it (tests/fixtures).

    drafts.py PRELOAD WORK

Needs torch. Prints one JSON object; exits 1 when something differs.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import layout_checkpoint  # noqa: E402

import preload  # noqa: E402

DRAFTS = {
    "deepseek_v3_mtp": ("deepseek_v3_mtp", "mtp"),
    "llama_eagle": ("llama", "eagle"),
    "llama_eagle3": ("llama", "eagle3"),
    "llama_eagle3_shared": ("llama", "eagle3"),
}
FAMILIES = json.loads((ROOT / "tests/fixtures/families.json").read_text())["families"]


def serve(program, work, draft):
    """The daemon, READY."""
    target, method = DRAFTS[draft]
    for family in {target, draft}:
        layout_checkpoint.write(str(work), family, FAMILIES[family])
    config = {"method": method, "num_speculative_tokens": 1}
    if target != draft:
        config["model"] = str(work / draft)
    command = [program, "serve", "--model", str(work / target), "--device", "cuda"]
    daemon = subprocess.Popen([*command, "--speculative-config", json.dumps(config)])
    subprocess.run([program, "wait", "--timeout", "120"], check=True)
    return daemon


def differing(draft):
    """Names of the draft's tensors whose bytes are not those that vLLM held."""
    import torch

    path = ROOT / f"tests/fixtures/vllm-0.32.0/{draft}_draft.tp1pp1.r0.json"
    recorded = {name: e[3] for name, e in json.loads(path.read_text()).items() if e[0] == "param"}
    with preload.attach(gpu=0) as target, preload.attach(gpu=0, role="draft") as shard:
        tensors = shard.torch()
        names = sorted(set(recorded) ^ set(tensors))
        for name in set(recorded) & set(tensors):
            raw = tensors[name].contiguous().view(torch.uint8).cpu().numpy().tobytes()
            if hashlib.sha256(raw).hexdigest()[:32] != recorded[name]:
                names.append(name)
        if not all(t.is_cuda for t in [*tensors.values(), *target.torch().values()]):
            names.append("not on the GPU")
        return names


def main():
    program, work = sys.argv[1], pathlib.Path(sys.argv[2])
    result = {"ok": True, "drafts": {}}
    for draft in DRAFTS:
        daemon = serve(program, work, draft)
        try:
            names = differing(draft)
        finally:
            subprocess.run([program, "stop"], check=True)
            status = daemon.wait(60)
        result["drafts"][draft] = {"differing": names, "status": status}
        result["ok"] = result["ok"] and not names and status == 0
        time.sleep(0.1)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
