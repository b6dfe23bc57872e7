#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One vLLM engine: loads, generates greedily, prints one JSON object.

    vllm_generate.py MODEL LOAD_FORMAT [--extra JSON] [--options JSON] [--ask JSON]

--options: more arguments of vllm.LLM. --ask: worker calls to make after generating, whose outcome is
reported. The object: tokens, the seconds that start and generation took, what was logged by the loader.
"""

import argparse
import json
import logging
import time


def prompts(count: int = 3, length: int = 12) -> list:
    return [[(7 * i + 3 * j) % 250 + 1 for i in range(length)] for j in range(count)]


class Lines(logging.Handler):
    """Keeps what the load format and vLLM's "Model loading took" say."""

    def __init__(self):
        super().__init__()
        self.lines: list = []

    def emit(self, record):
        text = record.getMessage()
        if text.startswith("preload") or "Model loading took" in text:
            self.lines.append(text)


def ask(llm, calls: list) -> dict:
    """Each worker call's outcome: "done", or the error's type and text."""
    outcomes = {}
    for name, *arguments in calls:
        try:
            llm.collective_rpc(name, args=tuple(arguments))
            outcomes[name] = "done"
        except Exception as error:  # noqa: BLE001  the outcome is what is asked for
            outcomes[name] = f"{type(error).__name__}: {error}"
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("load_format")
    for option in ("--extra", "--options", "--ask"):
        parser.add_argument(option, type=json.loads, default=None)
    parser.add_argument("--tokens", type=int, default=16)
    args = parser.parse_args()
    began = time.perf_counter()
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    imported = time.perf_counter()
    lines = Lines()
    logger = logging.getLogger("vllm")  # vLLM sets its handlers when it is imported
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)

    options = {"max_model_len": 128, "max_num_seqs": 4, "enforce_eager": True, **(args.options or {})}
    llm = LLM(
        model=args.model,
        load_format=args.load_format,
        model_loader_extra_config=args.extra or {},
        skip_tokenizer_init=True,
        **options,
    )
    started = time.perf_counter()

    def generate():
        sampling = SamplingParams(temperature=0, max_tokens=args.tokens, ignore_eos=True, detokenize=False)
        given = [TokensPrompt(prompt_token_ids=ids) for ids in prompts()]
        return [list(out.outputs[0].token_ids) for out in llm.generate(given, sampling, use_tqdm=False)]

    tokens = generate()
    result = {"tokens": tokens, "import_s": imported - began, "start_s": started - began, "lines": lines.lines}
    result["blocks"] = llm.llm_engine.vllm_config.cache_config.num_gpu_blocks
    result["generate_s"] = time.perf_counter() - started
    if args.ask:
        result["asked"] = ask(llm, args.ask)
        result["tokens_after"] = generate()
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
