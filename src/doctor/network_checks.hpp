// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "doctor/check.hpp"
#include "doctor/variables.hpp"

namespace preload::doctor {

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // numeric
  friend bool operator==(const Interface&, const Interface&) = default;
};
// Those that are up and have an address; loopback too.
std::vector<Interface> gather_interfaces();
// InfiniBand and RoCE adapters, by name; `sys` is "/sys" but for tests.
std::vector<std::string> gather_adapters(const std::string& sys = "/sys");

// The interfaces that NCCL, Open MPI and UCX are told to use are there; ranks of other hosts can
// reach this one.
Check check_network(const std::vector<Interface>& interfaces,
                    const std::vector<std::string>& adapters, const Variables& variables);

}  // namespace preload::doctor
