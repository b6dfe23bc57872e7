# SPDX-License-Identifier: Apache-2.0
"""vLLM's part of a warm-up: an engine on the weights that a daemon has just loaded, a few tokens, the end.

    preload serve --model DIR … --warmup-exec-scope replica \\
        --warmup-exec 'python3 -m preload.vllm.warmup --max-model-len 8192'

Starts an engine with ``--load-format preload`` and the model, sizes and types that serve was given, and
generates at each batch size and prompt length. What vLLM, Triton, torch.compile, FlashInfer and DeepGEMM
compile and tune for that lies in the caches that serve has named, where the next engine with the same
arguments finds it. Every other argument is one of vLLM's engine.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import fields

from ..errors import UsageError
from . import LOAD_FORMAT, register

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
PROMPT_LENGTHS = (16, 256, 2048)
OUTPUT_TOKENS = 4


def told(environment) -> dict:
    """What serve says of the engine that is to be warmed up, by names of vLLM's arguments."""
    text = environment.get("PRELOAD_WARMUP_ENGINE")
    if not text:
        raise UsageError(
            "PRELOAD_WARMUP_ENGINE is not set: this runs as the command of `preload serve --warmup-exec`"
        )
    return json.loads(text)


def check_scope(environment, engine: dict) -> None:
    """Raises UsageError where each rank of an engine of several would start all of it."""
    ranks = engine["tensor_parallel_size"] * engine["pipeline_parallel_size"]
    if ranks > 1 and environment.get("PRELOAD_WARMUP_SCOPE") != "replica":
        raise UsageError(
            f"an engine of {ranks} ranks starts its own workers: give serve --warmup-exec-scope replica"
        )


def numbers(text: str) -> tuple:
    """"1,8,32" as numbers, each 1 or more."""
    values = tuple(int(part) for part in text.split(","))
    if min(values) < 1:
        raise ValueError(text)
    return values


def runs(batch_sizes, prompt_lengths, most_sequences: int, most_tokens: int, output_tokens: int) -> list:
    """(sequences, tokens of each prompt) pairs that the engine can take: what is too large is cut, once."""
    room = most_tokens - output_tokens
    if room < 1:
        raise UsageError(f"{output_tokens} tokens after a prompt do not fit into --max-model-len {most_tokens}")
    sizes = sorted({min(size, most_sequences) for size in batch_sizes})
    lengths = sorted({min(length, room) for length in prompt_lengths})
    return [(size, length) for length in lengths for size in sizes]


def prompts(size: int, length: int, vocabulary: int) -> list:
    """Token ids, others in each, so that no prefix is found again; the same every time."""
    draw = random.Random(f"{size} {length}")
    return [[draw.randrange(1, vocabulary) for _ in range(length)] for _ in range(size)]


def extra_config(given: dict | None, slot: str) -> dict:
    """Of the loader. A warm-up never loads a second copy from disk beside the one that is held."""
    config = {"fallback": False, "state_timeout_s": 60.0, **(given or {})}
    if slot:
        config.setdefault("slot", slot)
    return config


def parse(arguments, engine: dict):
    from vllm.engine.arg_utils import EngineArgs

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # where earlier versions have it
        from vllm.utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="python -m preload.vllm.warmup", description=__doc__.splitlines()[0])
    EngineArgs.add_cli_args(parser)
    parser.set_defaults(**engine, load_format=LOAD_FORMAT, skip_tokenizer_init=True)
    own = parser.add_argument_group("warm-up")
    own.add_argument("--warmup-batch-sizes", type=numbers, default=BATCH_SIZES)
    own.add_argument("--warmup-prompt-lengths", type=numbers, default=PROMPT_LENGTHS)
    own.add_argument("--warmup-output-tokens", type=int, default=OUTPUT_TOKENS)
    given = parser.parse_args(arguments)
    return given, EngineArgs.from_cli_args(given)


def warm_up(arguments, environment) -> None:
    engine = told(environment)
    check_scope(environment, engine)
    given, engine_args = parse(arguments, engine)
    engine_args.model_loader_extra_config = extra_config(
        engine_args.model_loader_extra_config, environment.get("PRELOAD_WARMUP_SLOT", "")
    )
    register()

    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    begin = time.perf_counter()
    llm = LLM(**{field.name: getattr(engine_args, field.name) for field in fields(engine_args)})
    print(f"engine up after {time.perf_counter() - begin:.1f} s", flush=True)
    config = llm.llm_engine.vllm_config
    sampling = SamplingParams(
        temperature=0, max_tokens=given.warmup_output_tokens, ignore_eos=True, detokenize=False
    )
    vocabulary = config.model_config.get_vocab_size()
    for size, length in runs(
        given.warmup_batch_sizes,
        given.warmup_prompt_lengths,
        config.scheduler_config.max_num_seqs,
        config.model_config.max_model_len,
        given.warmup_output_tokens,
    ):
        begin = time.perf_counter()
        batch = [TokensPrompt(prompt_token_ids=ids) for ids in prompts(size, length, vocabulary)]
        llm.generate(batch, sampling, use_tqdm=False)
        print(f"{size} x {length} tokens: {time.perf_counter() - begin:.2f} s", flush=True)


def main() -> int:
    try:
        warm_up(sys.argv[1:], os.environ)
    except UsageError as error:
        print(f"preload.vllm.warmup: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
