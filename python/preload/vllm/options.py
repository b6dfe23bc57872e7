# SPDX-License-Identifier: Apache-2.0
"""``--model-loader-extra-config`` of the load format."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import UsageError

MODES = ("zero_copy", "copy")


@dataclass(frozen=True)
class Options:
    mode: str = "zero_copy"
    fallback: bool = True
    socket_dir: str | None = None
    socket_path: str | None = None
    connect_timeout_s: float = 5.0
    state_timeout_s: float = 300.0
    wait_s: float = 0.0
    slot: str = ""

    @property
    def zero_copy(self) -> bool:
        return self.mode == "zero_copy"


def _refuse(key: str, wanted: str, value) -> None:
    raise UsageError(f"load format preload: {key} must be {wanted}, not {value!r}")


def parse(extra_config: dict | None) -> Options:
    """Options from the loader's extra config; raises UsageError for what it does not know."""
    given = dict(extra_config or {})
    known = {field.name for field in fields(Options)}
    if unknown := sorted(set(given) - known):
        raise UsageError(
            f"load format preload: unknown keys {unknown} in the loader's extra config; "
            f"known are {sorted(known)}"
        )
    for key in ("connect_timeout_s", "state_timeout_s", "wait_s"):
        if key not in given:
            continue
        value = given[key]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (is_number and (value > 0 or (value == 0 and key != "connect_timeout_s"))):
            _refuse(key, "a number of seconds, not negative", value)
        given[key] = float(value)
    for key in ("socket_dir", "socket_path", "slot"):
        if given.get(key) is not None and not isinstance(given[key], str):
            _refuse(key, "a text", given[key])
    if given.get("socket_dir") is not None and given.get("socket_path") is not None:
        raise UsageError("load format preload: socket_dir and socket_path are both set: give one")
    if given.get("slot", "") is None:
        _refuse("slot", "a text", None)
    options = Options(**given)
    if options.mode not in MODES:
        _refuse("mode", f"one of {list(MODES)}", options.mode)
    if not isinstance(options.fallback, bool):
        _refuse("fallback", "true or false", options.fallback)
    return options
