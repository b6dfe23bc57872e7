#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What two GPUs give without preload, measured by torch in processes of their own.

    two_limits.py rings FILE...      page cache → GPU, a plain pinned ring for each GPU, both at once
    two_limits.py pinned             pinned memory → GPU, both at once
    two_limits.py peer               GPU 0 → GPU 1, one copy
    two_limits.py broadcast          GPU 0 → GPU 1, NCCL's broadcast

--host: on CPUs, where memory takes the part of GPUs and Gloo that of NCCL: a rehearsal. Prints
{"gb_per_s": [...]}, one figure a GPU or one in all.
"""

import argparse
import json
import multiprocessing
import pathlib
import threading
import time

import numpy
import torch

SECONDS = 3.0  # of measuring
CHUNK = 4 << 20
THREADS, DEPTH = 8, 3  # of a ring
LARGE = 1 << 30


def device_of(rank: int, host: bool) -> torch.device:
    return torch.device("cpu") if host else torch.device("cuda", rank)


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def buffer(count: int, host: bool, device="cpu"):
    return torch.empty(count, dtype=torch.uint8, device=device, pin_memory=not host and device == "cpu")


def repeated(copy, device, bytes_each: int) -> float:
    """GB/s of `copy` over and over."""
    copy()
    wait_for(device)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        copy()
        wait_for(device)
        count += 1
    return count * bytes_each / (time.perf_counter() - begin) / 1e9


def pinned(rank: int, args, barrier) -> float:
    size = CHUNK * 16 if args.host else LARGE
    source, target = buffer(size, args.host), buffer(size, args.host, device_of(rank, args.host))
    barrier.wait(120)
    return repeated(lambda: target.copy_(source, non_blocking=True), target.device, size)


def ring(rank: int, args, barrier) -> float:
    """Threads take chunks of the files in turn: page cache → pinned → GPU."""
    device = device_of(rank, args.host)
    maps = [numpy.memmap(path, dtype=numpy.uint8, mode="r") for path in args.files]
    places = [(which, at) for which, data in enumerate(maps) for at in range(0, len(data) - CHUNK + 1, CHUNK)]
    target = buffer(CHUNK * THREADS * DEPTH, args.host, device)
    lock, state = threading.Lock(), {"next": 0, "bytes": 0, "until": 0.0}

    def work(number: int) -> None:
        slots = [buffer(CHUNK, args.host) for _ in range(DEPTH)]
        views = [slot.numpy() for slot in slots]
        stream = None if args.host else torch.cuda.Stream(device)
        done = [None] * DEPTH
        turn = 0
        start.wait(120)
        while time.perf_counter() < state["until"]:
            with lock:
                which, at = places[state["next"] % len(places)]
                state["next"] += 1
            slot = turn % DEPTH
            if done[slot] is not None:
                done[slot].synchronize()
            numpy.copyto(views[slot], maps[which][at : at + CHUNK])
            part = target.narrow(0, (number * DEPTH + slot) * CHUNK, CHUNK)
            if stream is None:
                part.copy_(slots[slot])
            else:
                with torch.cuda.stream(stream):
                    part.copy_(slots[slot], non_blocking=True)
                    done[slot] = torch.cuda.Event()
                    done[slot].record(stream)
            turn += 1
        wait_for(device)
        with lock:
            state["bytes"] += turn * CHUNK

    start = threading.Barrier(THREADS + 1)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    barrier.wait(120)
    begin = time.perf_counter()
    state["until"] = begin + SECONDS
    start.wait(120)
    for thread in threads:
        thread.join()
    return state["bytes"] / (time.perf_counter() - begin) / 1e9


def broadcast(rank: int, args, barrier) -> float:
    device = device_of(rank, args.host)
    if not args.host:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        "gloo" if args.host else "nccl", init_method=f"file://{args.meeting}", rank=rank, world_size=2
    )
    size = CHUNK * 4 if args.host else LARGE
    data = buffer(size, args.host, device)
    rounds = 5 if args.host else 40
    torch.distributed.broadcast(data, 0)
    wait_for(device)
    barrier.wait(120)
    begin = time.perf_counter()
    for _ in range(rounds):
        torch.distributed.broadcast(data, 0)
    wait_for(device)
    rate = rounds * size / (time.perf_counter() - begin) / 1e9
    torch.distributed.destroy_process_group()
    return rate


def peer(args) -> float:
    size = CHUNK * 16 if args.host else LARGE
    source, target = (buffer(size, args.host, device_of(rank, args.host)) for rank in (0, 1))
    return repeated(lambda: target.copy_(source, non_blocking=True), target.device, size)


def run_rank(measure, rank, args, barrier, results):
    results.put((rank, measure(rank, args, barrier)))


def both(measure, args) -> list:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    ranks = [context.Process(target=run_rank, args=(measure, rank, args, barrier, results)) for rank in (0, 1)]
    for process in ranks:
        process.start()
    try:
        found = dict(results.get(timeout=180) for _ in ranks)
    finally:
        for process in ranks:
            process.join(30)
            process.kill()
    return [found[0], found[1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("rings", "pinned", "peer", "broadcast"))
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--meeting", help="a file that is not there yet, for broadcast's ranks to meet")
    args = parser.parse_args()
    if args.what == "peer":
        rates = [peer(args)]
    elif args.what == "broadcast":
        rates = [min(both(broadcast, args))]
    else:
        rates = both({"rings": ring, "pinned": pinned}[args.what], args)
    print(json.dumps({"gb_per_s": rates}))


if __name__ == "__main__":
    main()
