// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace preload::hook {

// Versions of the engines and compilers that a hook's Python has installed, by package: "vllm",
// "torch", "triton" … What a warm-up leaves behind is of use to these versions only. Nothing is
// run: an installed package shows its version in the name of its .dist-info folder, below the
// prefix of each program of a folder `bin` that the command names, of VIRTUAL_ENV and CONDA_PREFIX,
// of the first python3 or python in a folder `bin` of PATH, before it the user's own where that is
// no virtual environment, and in PYTHONPATH.
std::map<std::string, std::string> engine_packages(const std::string& command,
                                                   const std::vector<std::string>& environment);

// What is set in the environment of what engines and compilers read, by name, but for where their
// files lie: other settings make other kernels.
std::map<std::string, std::string> engine_settings(const std::vector<std::string>& environment);

}  // namespace preload::hook
