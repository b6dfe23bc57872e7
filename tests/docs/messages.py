# SPDX-License-Identifier: Apache-2.0
"""The texts in this repository's programs, to hold what the docs quote against."""

import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parents[2]

# A string, a character, a comment, or anything else, in C++.
TOKEN = re.compile(
    r'''"(?P<text>(?:[^"\\\n]|\\.)*)"|'(?:[^'\\\n]|\\.)+'|//[^\n]*|/\*.*?\*/|\s+|(?P<other>.)''', re.S
)
ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}


def texts_of(code):
    """The string literals of C++ code; what the compiler joins is one."""
    texts, joined = [], None
    for token in TOKEN.finditer(code):
        if token["text"] is not None:
            joined = (joined or "") + re.sub(r"\\.", lambda m: ESCAPES.get(m[0], m[0]), token["text"])
        elif token["other"] is not None or token[0].startswith("'"):
            if joined is not None:
                texts.append(joined)
            joined = None
    return texts + ([joined] if joined is not None else [])


def all_texts():
    """Every text that one of our programs may print."""
    texts = []
    for folder in ("src", "kernels"):
        for path in sorted((SOURCE / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".cu", ".cuh"):
                texts += texts_of(path.read_text())
    for path in [*(SOURCE / "python").rglob("*.py"), *(SOURCE / "launch").rglob("*")]:
        # What Python compiled for itself is no source.
        if path.is_file() and path.suffix != ".pyc":
            texts.append(path.read_text())
    return texts
