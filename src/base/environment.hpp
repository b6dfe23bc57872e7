// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

namespace preload {

// The variable's value; empty when it is not set.
std::string environment(const char* name);
std::map<std::string, std::string, std::less<>> environment_variables();  // all, by name
std::string host_name();  // of this machine, as gethostname gives it

}  // namespace preload
