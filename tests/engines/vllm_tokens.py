#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy tokens of --load-format preload beside those of auto; part of tests/engines/vllm_cpu.

vllm_tokens.py PRELOAD WORK
"""

import argparse
import json
import pathlib
import sys

import daemon
from vllm_engine import Engines, Table

MP = {"distributed_executor_backend": "mp"}


class Tokens:
    def __init__(self, program: str, work: pathlib.Path):
        self.program, self.work, self.engines = program, work, Engines(work)

    def model(self, kind: str, **changes) -> str:
        path = self.work / kind
        return str(path) if path.exists() else daemon.write_model(path, kind, **changes)

    def equal(self, kind: str, serve=(), ranks: int = 1, options=None, extra=None) -> str:
        model = self.model(kind)
        options = options or {}
        expected = self.engines.run(model, "auto", options=options)["tokens"]
        extra = {"fallback": False, **(extra or {})}
        with daemon.Served(self.program, "--model", model, *serve, ranks=ranks):
            got = self.engines.run(model, options=options, extra=extra)
        assert got["tokens"] == expected, (got["tokens"], expected)
        took = [line for line in got["lines"] if line.startswith("preload:")]
        assert len(took) == ranks, got["lines"]
        return took[0]

    def two_at_once(self) -> str:
        model = self.model("llama")
        expected = self.engines.run(model, "auto")["tokens"]
        with daemon.Served(self.program, "--model", model):
            both = [self.engines.start(model, extra={"fallback": False}) for _ in range(2)]
            got = [self.engines.finish(process)["tokens"] for process in both]
        assert got == [expected, expected], got

    def data_parallel(self, kind: str) -> str:
        """Two replicas, as `vllm serve -dp 2` starts them; each answers with the same tokens."""
        model = self.model(kind)
        expected = self.engines.run(model, "auto")["tokens"]
        with daemon.Served(self.program, "--model", model, "-dp", "2", ranks=2):
            got = self.engines.run(
                model,
                extra={"fallback": False},
                options={"data_parallel_size": 2},
                environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
            )
        assert got["tokens"] == expected, (got["tokens"], expected)
        assert got["tokens_of_replicas"] == [expected, expected], got["tokens_of_replicas"]
        took = [line for line in got["lines"] if line.startswith("preload:")]
        assert {part for line in took for part in ("host:0", "host:1") if part in line} == {
            "host:0",
            "host:1",
        }, took
        return took[0]

    def copy(self) -> str:
        """Copies, and the daemon lets go of what nobody else holds."""
        model = self.model("llama")
        expected = self.engines.run(model, "auto")["tokens"]
        with daemon.Served(self.program, "--model", model) as served:
            got = self.engines.run(model, extra={"fallback": False, "mode": "copy"})
            assert got["tokens"] == expected, got["tokens"]
            served.wait_until(lambda status: status["state"] == "RELEASED")

    def eagle(self) -> str:
        """A draft without embeddings and head of its own beside its target: vLLM shares the target's."""
        target, draft = self.model("llama"), str(self.work / "draft")
        daemon.write_eagle(pathlib.Path(draft))
        speculative = {"method": "eagle", "model": draft, "num_speculative_tokens": 2}
        options = {"speculative_config": speculative}
        expected = self.engines.run(target, "auto", options=options)["tokens"]
        with daemon.Served(self.program, "--model", target, "--speculative-config", json.dumps(speculative)):
            got = self.engines.run(target, options=options, extra={"fallback": False})
        assert got["tokens"] == expected, (got["tokens"], expected)
        roles = [line for line in got["lines"] if " of draft " in line]
        assert roles, got["lines"]
        return roles[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", help="only these")
    args = parser.parse_args()
    daemon.use_directories(args.work)
    tokens, table = Tokens(args.program, args.work), Table()
    tp2 = {"tensor_parallel_size": 2, **MP}
    cases = {
        "dense": lambda: tokens.equal("llama"),
        "tied": lambda: tokens.equal("qwen3"),
        "moe": lambda: tokens.equal("mixtral"),
        "tp2": lambda: tokens.equal("llama", ["-tp", "2"], 2, tp2),
        "tp2-moe": lambda: tokens.equal("mixtral", ["-tp", "2"], 2, tp2),
        "dp2": lambda: tokens.data_parallel("llama"),
        "two-at-once": tokens.two_at_once,
        "copy": tokens.copy,
        "eagle": tokens.eagle,
    }
    for name in args.cases or cases:
        table.check(name, cases[name])
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
