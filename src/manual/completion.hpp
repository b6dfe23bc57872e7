// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace preload::manual {

// Completion of preload's command line in a shell, made from the option table.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace preload::manual
