#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A picture of a sweep of NCCL's collectives: time by size for each candidate, the choice marked.

    preload tune --json | examples/plot_tuning.py - sweep.svg
    examples/plot_tuning.py sweep.json sweep.svg --index 1

Needs Python alone. One panel for each operation and shape of communicator; dashed what engines send
out of CUDA graphs; a ring where another than NCCL's own choice is used.
"""

import argparse
import collections
import html
import json
import math
import pathlib
import sys

PANEL_WIDTH, PANEL_HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 170, 34, 44
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#bcbd22")
OWN_COLOUR = "#000000"

Panel = collections.namedtuple("Panel", "title lines marks")  # lines: name -> [(bytes, us)], marks: [(bytes, us)]


def candidate_name(candidate):
    if candidate["algorithm"] is None:
        return "NCCL's own"
    return f"{candidate['algorithm']}/{candidate['protocol']}"


def panels_of(sweep):
    """By operation and shape. Of the channels that were tried, the fastest is a candidate's time."""
    grouped = collections.OrderedDict()
    for point in sweep["points"]:
        group = sweep["groups"][point["group"]]
        title = f"{point['operation']}, {group}: {point['ranks']} ranks on {point['nodes']} node(s)"
        grouped.setdefault(title, []).append(point)
    panels = []
    for title, points in grouped.items():
        lines, marks = collections.defaultdict(dict), []
        for point in points:
            for candidate in point["candidates"]:
                time = candidate["microseconds"]
                if time is None:
                    continue
                line = lines[candidate_name(candidate), point["captured"]]
                line[point["bytes"]] = min(time, line.get(point["bytes"], math.inf))
            if point["chosen"] is not None:
                marks.append((point["bytes"], point["chosen_microseconds"]))
        panels.append(Panel(title, {name: sorted(line.items()) for name, line in lines.items()}, marks))
    return panels


def size_name(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GiB"


class Axes:
    """Logarithmic both ways."""

    def __init__(self, panel):
        values = [value for line in panel.lines.values() for value in line] + panel.marks
        self.x0, self.x1 = self.span([size for size, _ in values])
        self.y0, self.y1 = self.span([time for _, time in values])

    @staticmethod
    def span(values):
        low, high = math.log10(min(values)), math.log10(max(values))
        return (low, high) if high - low > 0.1 else (low - 0.5, high + 0.5)

    def x(self, size):
        return LEFT + (math.log10(size) - self.x0) / (self.x1 - self.x0) * (PANEL_WIDTH - LEFT - 10)

    def y(self, time):
        part = (math.log10(time) - self.y0) / (self.y1 - self.y0)
        return PANEL_HEIGHT - BOTTOM - part * (PANEL_HEIGHT - TOP - BOTTOM)

    def ticks(self):
        for power in range(int(self.x0 / math.log10(4)), int(self.x1 / math.log10(4)) + 2):
            size = 4**power
            if self.x0 <= math.log10(size) <= self.x1:
                yield "x", size, size_name(size)
        for power in range(math.floor(self.y0), math.ceil(self.y1) + 1):
            for factor in (1, 2, 5):
                time = factor * 10.0**power
                if self.y0 <= math.log10(time) <= self.y1:
                    yield "y", time, f"{time:g}"


def text(x, y, words, anchor="start", size=11):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{html.escape(words)}</text>'


def draw_panel(panel, top):
    parts = [f'<g transform="translate(0,{top})">', text(LEFT, 18, panel.title, size=13)]
    if not panel.lines:
        return [*parts, text(LEFT, 60, "nothing could be timed"), "</g>"]
    axes = Axes(panel)
    bottom = PANEL_HEIGHT - BOTTOM
    for axis, value, words in axes.ticks():
        if axis == "x":
            parts.append(f'<path d="M{axes.x(value):.1f} {TOP}V{bottom}" stroke="#ddd"/>')
            parts.append(text(axes.x(value), bottom + 14, words, "middle"))
        else:
            parts.append(f'<path d="M{LEFT} {axes.y(value):.1f}H{PANEL_WIDTH - 10}" stroke="#ddd"/>')
            parts.append(text(LEFT - 6, axes.y(value) + 4, words, "end"))
    parts.append(text(LEFT, bottom + 32, "bytes; vertical: microseconds"))
    names = sorted({name for name, _ in panel.lines})
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)} | {"NCCL's own": OWN_COLOUR}
    for (name, captured), line in panel.lines.items():
        points = " ".join(f"{axes.x(size):.1f},{axes.y(time):.1f}" for size, time in line)
        dash = ' stroke-dasharray="5,3"' if captured else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="1.5"{dash}/>')
        for size, time in line:
            parts.append(f'<circle cx="{axes.x(size):.1f}" cy="{axes.y(time):.1f}" r="1.8" fill="{colours[name]}"/>')
    for size, time in panel.marks:
        parts.append(
            f'<circle class="chosen" cx="{axes.x(size):.1f}" cy="{axes.y(time):.1f}" r="6" fill="none" '
            'stroke="#d62728" stroke-width="2"/>'
        )
    for i, name in enumerate(names):
        y = TOP + 10 + 16 * i
        parts.append(f'<path d="M{PANEL_WIDTH} {y - 4}h18" stroke="{colours[name]}" stroke-width="2"/>')
        parts.append(text(PANEL_WIDTH + 24, y, name))
    return [*parts, "</g>"]


def draw(sweep):
    """The picture as SVG."""
    panels = panels_of(sweep)
    width, height = PANEL_WIDTH + RIGHT, 30 + PANEL_HEIGHT * max(1, len(panels))
    topology = sweep["topology"]
    measured = f"{len(sweep['points'])} of {sweep['planned']} messages"
    title = f"{sweep['model']}: {', '.join(topology['gpus'])}, {topology['ranks']} ranks, {measured}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(10, 20, title, size=14),
    ]
    for i, panel in enumerate(panels):
        parts += draw_panel(panel, 30 + PANEL_HEIGHT * i)
    return "\n".join([*parts, "</svg>", ""])


def read_sweep(name, index):
    source = sys.stdin.read() if name == "-" else pathlib.Path(name).read_text()
    try:
        sweeps = json.loads(source)["sweeps"]
        return sweeps[index]
    except (ValueError, TypeError, KeyError) as error:
        sys.exit(f"{name}: not what `preload tune --json` prints ({error})")
    except IndexError:
        sys.exit(f"{name}: there is no sweep {index}: {len(sweeps)} are there")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", help="what `preload tune --json` prints; - for standard input")
    parser.add_argument("picture", type=pathlib.Path, help="the SVG file to write")
    parser.add_argument("--index", type=int, default=0, help="which of several sweeps [0]")
    args = parser.parse_args()
    args.picture.write_text(draw(read_sweep(args.sweep, args.index)))


if __name__ == "__main__":
    main()
