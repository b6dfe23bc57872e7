# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's autotuning tables, handed from an engine to its successor through the daemon.

vLLM keeps them on disk:

    preload.flashinfer_tables.put_files()       # when the engine is warm
    preload.flashinfer_tables.get_files()       # in its successor, before vLLM starts to tune

Other engines have FlashInfer's tuner in memory (``save_configs`` and ``load_configs``, FlashInfer 0.6):

    preload.flashinfer_tables.put_tuner()
    preload.flashinfer_tables.get_tuner()       # True when the tuner has taken them

A table is of the GPU and of the versions under which it was measured: where they differ there is nothing
to get, and the log says what differs. In a group of ranks that tune together all must have theirs, or
none: vLLM 0.32 sees to that itself; elsewhere compare what the ranks got before the first one uses it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import tempfile
from pathlib import Path

from .artifacts import get_artifact, put_artifact
from .errors import UsageError

_log = logging.getLogger(__name__)

_KEY = "vllm-warmup-cache/flashinfer_autotune"
# <folder>/<hash>/autotune_configs_dp<D>_rank<R>.json in vLLM 0.32 (vllm/model_executor/warmup/
# kernel_warmup.py); autotune_configs.json before, and autotune_config.json as FlashInfer itself names it.
_HASH = re.compile(r"[0-9a-f]{64}")
_TABLE = re.compile(r"autotune_configs?(_dp\d+_rank\d+)?\.json")


def environment() -> dict[str, str]:
    """What a table depends on, by field, as far as it is known here."""
    known: dict[str, str] = {}
    try:
        import torch
    except ImportError:
        pass
    else:
        known["cuda"] = torch.version.cuda or ""
        with contextlib.suppress(RuntimeError):  # a cuDNN that is not the one torch was built with
            known["cudnn"] = str(torch.backends.cudnn.version() or "")
        if torch.cuda.is_available():
            known["gpu"] = torch.cuda.get_device_name()
            known["compute_capability"] = ".".join(map(str, torch.cuda.get_device_capability()))
    try:
        import flashinfer
    except ImportError:
        pass
    else:
        known["flashinfer"] = getattr(flashinfer, "__version__", "")
    return {name: value for name, value in known.items() if value}


def vllm_folder() -> Path:
    """Where vLLM 0.32 keeps the tables: below it, a folder for each of its configurations."""
    named = os.environ.get("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    try:
        from flashinfer.jit import env
    except ImportError:
        raise UsageError(
            "FlashInfer is not installed here, whose version and architecture are in the folder's name: "
            "set VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR, or name the folder"
        ) from None
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))
    root = Path(os.environ.get("VLLM_CACHE_ROOT", os.path.join(cache, "vllm"))).expanduser()
    workspace = Path(env.FLASHINFER_WORKSPACE_DIR)
    return root / "flashinfer_autotune_cache" / workspace.parent.name / workspace.name


def put_files(folder: str | os.PathLike | None = None, **where) -> int:
    """Leaves every table below ``folder`` (vllm_folder()) with the daemon; how many it has then.

    Those that it has of other configurations stay, unless they were made elsewhere.
    """
    tables = _read(Path(folder) if folder is not None else vllm_folder())
    if not tables:
        return 0
    tables = (_get("files.json", where) or {}) | tables
    _put("files.json", tables, where)
    return len(tables)


def get_files(folder: str | os.PathLike | None = None, **where) -> int:
    """Puts the tables that the daemon has below ``folder``, where there is none yet; how many."""
    root = Path(folder) if folder is not None else vllm_folder()
    placed = 0
    for name, text in (_get("files.json", where) or {}).items():
        parts = name.split("/")
        if len(parts) == 2 and _HASH.fullmatch(parts[0]) and _TABLE.fullmatch(parts[1]):
            placed += _place(root / parts[0], parts[1], text)
        else:
            _log.warning("a table that is not put anywhere: %r is no name of vLLM's", name)
    return placed


def put_tuner(**where) -> bool:
    """Leaves what FlashInfer's tuner of this process knows with the daemon; False when that is nothing."""
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "autotune_config.json")
        _tuner("save_configs")(path)
        with open(path) as file:
            table = json.load(file)
    if not any(name != "_metadata" for name in table):
        return False
    _put("tuner.json", table, where)
    return True


def get_tuner(**where) -> bool:
    """Gives FlashInfer's tuner of this process what its predecessor knew; whether it took it.

    FlashInfer compares versions and GPU itself once more, and takes nothing where one differs.
    """
    table = _get("tuner.json", where)
    if table is None:
        return False
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "autotune_config.json")
        with open(path, "w") as file:
            json.dump(table, file)
        return bool(_tuner("load_configs")(path))


def _tuner(method: str):
    try:
        from flashinfer.autotuner import AutoTuner

        return getattr(AutoTuner.get(), method)
    except (ImportError, AttributeError):
        raise UsageError(
            f"this FlashInfer has no AutoTuner.{method}: 0.6 or newer is needed (pip install flashinfer-python)"
        ) from None


def _read(root: Path) -> dict[str, str]:
    tables = {}
    for path in sorted(root.glob("*/autotune_config*.json")):
        if not (_HASH.fullmatch(path.parent.name) and _TABLE.fullmatch(path.name)):
            continue
        try:
            text = path.read_text()
            whole = isinstance(json.loads(text), dict)
        except (OSError, ValueError) as error:
            _log.warning("%s is not handed on: %s", path, error)
            continue
        if whole:
            tables[f"{path.parent.name}/{path.name}"] = text
    return tables


def _place(folder: Path, name: str, text: str) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        try:
            os.link(temporary, folder / name)  # never over one that is there
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            return _write_new(folder / name, text)
    finally:
        os.unlink(temporary)
    return True


def _write_new(path: Path, text: str) -> bool:
    try:
        with open(path, "x") as file:
            file.write(text)
    except FileExistsError:
        return False
    except OSError:
        path.unlink(missing_ok=True)  # half a table is none
        raise
    return True


def _put(name: str, value: dict, where: dict) -> None:
    metadata = json.dumps({"environment": environment()})
    put_artifact(f"{_KEY}/engine/{name}", json.dumps(value).encode(), metadata, **where)


def _get(name: str, where: dict) -> dict | None:
    found = get_artifact(f"{_KEY}/engine/{name}", **where)
    if found is None:
        return None
    try:
        made_under = json.loads(found.metadata)["environment"]
        value = json.loads(found.data)
        if not (isinstance(made_under, dict) and isinstance(value, dict)):
            raise ValueError("it is no table")
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("FlashInfer's tables of the daemon are not used: %s", error)
        return None
    here = environment()
    different = [
        f"{field} {made_under.get(field, 'unknown')} ({here.get(field, 'unknown')} here)"
        for field in sorted(made_under.keys() | here.keys())
        if made_under.get(field) != here.get(field)
    ]
    if different:
        _log.warning("FlashInfer's tables of the daemon were made under another %s", ", ".join(different))
        return None
    return value
