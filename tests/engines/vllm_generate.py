#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine: loads, generates greedily, prints one JSON object.

    vllm_generate.py MODEL LOAD_FORMAT [--extra JSON] [--options JSON] [--ask JSON] [--load-only]

--options: more arguments of vllm.LLM. --ask: worker calls to make after generating, whose outcome is
reported ("wait_for_file" is one of ours); then it generates again. With data_parallel_size in
the options each replica generates, and "tokens" are the first one's. The object: tokens, the
seconds that import, start and generation took, blocks of the KV cache. --load-only: ends as soon as a
GPU's weights are loaded, for the figures that vLLM logs of it; the object is then empty.
"""

import argparse
import asyncio
import json
import os
import time


def prompts(count: int = 3, length: int = 12) -> list:
    return [[(7 * i + 3 * j) % 250 + 1 for i in range(length)] for j in range(count)]


def ask(llm, calls: list) -> dict:
    """Each worker call's outcome: "done", or the error's type and text."""
    outcomes = {}
    for name, *arguments in calls:
        if name == "wait_for_file":
            while not os.path.exists(arguments[0]):
                time.sleep(0.05)
            continue
        try:
            llm.collective_rpc(name, args=tuple(arguments))
            outcomes[name] = "done"
        except Exception as error:  # noqa: BLE001  the outcome is what is asked for
            outcomes[name] = f"{type(error).__name__}: {error}"
    return outcomes


class Engine:
    """vllm.LLM, or AsyncLLM where there are several replicas to choose from."""

    def __init__(self, options: dict, tokens: int):
        from vllm import LLM, SamplingParams

        self._replicas = options.get("data_parallel_size", 1)
        self._sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        if self._replicas > 1:
            self._several = _Several(options)
        else:
            self.llm = LLM(**options)

    def generate(self) -> list:
        """Per replica, the tokens of each prompt."""
        from vllm.inputs import TokensPrompt

        given = [TokensPrompt(prompt_token_ids=ids) for ids in prompts()]
        if self._replicas > 1:
            return [
                self._several.generate(given, self._sampling, replica) for replica in range(self._replicas)
            ]
        outputs = self.llm.generate(given, self._sampling, use_tqdm=False)
        return [[list(output.outputs[0].token_ids) for output in outputs]]

    def close(self) -> None:
        if self._replicas > 1:
            self._several.close()

    def blocks(self):
        if self._replicas > 1:
            return None
        return self.llm.llm_engine.vllm_config.cache_config.num_gpu_blocks


class _Several:
    def __init__(self, options: dict):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._loop = asyncio.new_event_loop()

        async def start():
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**options))

        self._engine = self._loop.run_until_complete(start())

    def generate(self, given: list, sampling, replica: int) -> list:
        async def one(number: int, prompt) -> list:
            stream = self._engine.generate(
                prompt, sampling, f"{replica}-{number}", data_parallel_rank=replica
            )
            async for output in stream:
                last = output
            return list(last.outputs[0].token_ids)

        async def every() -> list:
            return await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(given)))

        return list(self._loop.run_until_complete(every()))

    def close(self) -> None:
        self._engine.shutdown()


def end_when_loaded() -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    load_model = GPUModelRunner.load_model

    def load_and_end(self, *arguments, **options):
        load_model(self, *arguments, **options)
        print("RESULT {}", flush=True)
        os._exit(0)

    GPUModelRunner.load_model = load_and_end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("load_format")
    for option in ("--extra", "--options", "--ask"):
        parser.add_argument(option, type=json.loads, default=None)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--load-only", action="store_true")
    args = parser.parse_args()
    began = time.perf_counter()
    import vllm  # noqa: F401  timed

    imported = time.perf_counter()
    if args.load_only:
        end_when_loaded()
    defaults = {"max_model_len": 128, "max_num_seqs": 4, "enforce_eager": True, "skip_tokenizer_init": True}
    loading = {"load_format": args.load_format, "model_loader_extra_config": args.extra or {}}
    engine = Engine({"model": args.model, **loading, **defaults, **(args.options or {})}, args.tokens)
    started = time.perf_counter()
    tokens = engine.generate()
    result = {
        "tokens": tokens[0],
        "tokens_of_replicas": tokens,
        "import_s": imported - began,
        "start_s": started - began,
        "generate_s": time.perf_counter() - started,
        "blocks": engine.blocks(),
    }
    if args.ask:
        result["asked"] = ask(engine.llm, args.ask)
        result["tokens_after"] = engine.generate()[0]
    print("RESULT " + json.dumps(result), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
