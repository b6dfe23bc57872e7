// SPDX-License-Identifier: Apache-2.0
#include "artifact/local_environment.hpp"

#include <sys/utsname.h>

#include <fstream>

#include "memory/nvml.hpp"

namespace preload::artifact {
namespace {

// The machine's architecture where /proc/cpuinfo names no model.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  utsname names{};
  return ::uname(&names) == 0 ? names.machine : "";
}

void add(Environment& environment, const char* name, const std::string& value) {
  if (!value.empty()) environment[name] = value;
}

}  // namespace

Environment local_environment(const std::string& uuid, const char* nvml_library) {
  Environment environment;
  if (uuid.starts_with("host:")) {
    environment["gpu"] = "none";
    add(environment, "cpu", cpu_model());
    return environment;
  }
  const auto identity = query_nvml_identity(uuid, nvml_library);
  if (!identity) return environment;
  add(environment, "gpu", identity->name);
  add(environment, "compute_capability", identity->compute_capability);
  add(environment, "driver", identity->driver_version);
  add(environment, "cuda", identity->cuda_version);
  return environment;
}

}  // namespace preload::artifact
