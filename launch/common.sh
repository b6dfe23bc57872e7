# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts of launch/ and tests/ share. Sourced, never run.

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

step() { printf '\n== %s\n' "$*"; }

# The cores this process may use: what a container or a job step was given, not what the host has.
cores() { nproc; }

# nvcc as CMake would find it, or nothing.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; do
    if [[ -n $candidate ]] && command -v "$candidate"; then return 0; fi
  done
  return 0
}

# A virtual environment's or pyenv's python3 may come first on the PATH and lack NumPy; Debian's
# python3-numpy serves /usr/bin/python3.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import numpy' 2>/dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  die "no python3 that can import numpy: install python3-numpy"
}

# CMake's arguments for a compiler cache, where there is one; for the languages given.
ccache_arguments() {
  if command -v ccache >/dev/null; then printf -- '-DCMAKE_%s_COMPILER_LAUNCHER=ccache\n' "$@"; fi
}
