// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace preload {

// The variable's value; empty when it is not set.
std::string environment(const char* name);
std::string host_name();  // of this machine, as gethostname gives it

}  // namespace preload
