// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace preload::run {

// Bytes a second that this host's network takes, by what its adapters say of themselves: all active
// InfiniBand and RoCE ports together, else the fastest Ethernet link that is up. 0: unknown.
double network_bytes_per_s(const std::string& sys = "/sys");

}  // namespace preload::run
