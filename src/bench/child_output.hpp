// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace preload::bench {

// Runs a program found on the PATH, without standard input, with our standard error and with
// `environment` laid over ours (an empty value unsets). Returns what it prints. Throws
// Error(kInternal) naming the program when it cannot be started, does not end in time (it is killed
// then) or ends with another status than 0.
std::string child_output(const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment,
                         std::chrono::seconds limit);

}  // namespace preload::bench
