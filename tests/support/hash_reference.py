#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The content hash written from its definition in docs/hash.md, in plain Python integers: slow, and
independent of the code under test.

    hash_reference.py            print the table of test vectors
    hash_reference.py --check F  exit 1 unless every vector in the Markdown file F is right
    hash_reference.py FILE       hash a file's bytes
"""

import pathlib
import sys

MASK_64 = (1 << 64) - 1
MASK_128 = (1 << 128) - 1


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK_64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK_64
    return x ^ (x >> 31)


def weight(i):
    """r(i): the odd 128-bit factor of word i."""
    return (splitmix64(2 * i & MASK_64) << 64 | splitmix64(2 * i + 1 & MASK_64)) | 1


def content_hash(data, offset=0):
    """Contribution of `data` at byte `offset` of its tensor; offset 0 and all bytes: the hash."""
    total = 0
    first = offset // 8
    padded = bytes(offset % 8) + bytes(data)
    padded += bytes(-len(padded) % 8)
    for k in range(len(padded) // 8):
        word = int.from_bytes(padded[8 * k : 8 * k + 8], "little")
        total = (total + word * weight(first + k)) & MASK_128
    return total


def ramp(length):
    return bytes((167 * i + 13) % 251 for i in range(length))


def ones(length):
    return b"\xff" * length


CONTENTS = {"ramp": ramp, "ones": ones}
VECTORS = [
    ("ramp", 0, 0),
    ("ramp", 1, 0),
    ("ramp", 7, 0),
    ("ramp", 8, 0),
    ("ramp", 9, 0),
    ("ramp", 16, 0),
    ("ramp", 4099, 0),
    ("ramp", 1_000_003, 0),
    ("ones", 8, 0),
    ("ones", 4096, 0),
    ("ramp", 1, 5),
    ("ramp", 8, 3),
    ("ramp", 3, 7),
    ("ramp", 100, 4093),
    ("ramp", 4099, 8_589_934_595),
    ("ones", 512, 1_099_511_627_776),
]


def row(kind, length, offset):
    return f"| {kind} | {length} | {offset} | {content_hash(CONTENTS[kind](length), offset):032x} |"


def check(path):
    rows = [line for line in path.read_text().splitlines() if line.startswith(("| ramp", "| ones"))]
    wrong = 0
    for line in rows:
        kind, length, offset = [cell.strip() for cell in line.strip("|").split("|")][:3]
        if line != row(kind, int(length), int(offset)):
            print(f"wrong: {line}\nright: {row(kind, int(length), int(offset))}")
            wrong += 1
    print(f"{len(rows)} vectors, {wrong} wrong")
    return 0 if rows and not wrong else 1


def main(argv):
    if argv[:1] == ["--check"] and len(argv) == 2:
        return check(pathlib.Path(argv[1]))
    if len(argv) == 1 and not argv[0].startswith("-"):
        print(f"{content_hash(pathlib.Path(argv[0]).read_bytes()):032x}")
        return 0
    if argv:
        print(__doc__, file=sys.stderr)
        return 2
    print("| bytes | length | offset | contribution |\n|---|---|---|---|")
    for vector in VECTORS:
        print(row(*vector))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
