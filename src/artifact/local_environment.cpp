// SPDX-License-Identifier: Apache-2.0
#include "artifact/local_environment.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <vector>

#include "base/log.hpp"
#include "memory/cuda_identity.hpp"
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

// NVML's account, filled up from the CUDA driver and its kernel module.
NvmlIdentity identity_of(const std::string& uuid, const IdentitySources& sources) {
  NvmlIdentity identity = query_nvml_identity(uuid, sources.nvml).value_or(NvmlIdentity{});
  const bool whole = !identity.name.empty() && !identity.compute_capability.empty() &&
                     !identity.cuda_version.empty();
  if (!whole) {
    const auto cuda = query_cuda_identity(uuid, sources.cuda).value_or(CudaIdentity{});
    if (identity.name.empty()) identity.name = cuda.name;
    if (identity.compute_capability.empty()) identity.compute_capability = cuda.compute_capability;
    if (identity.cuda_version.empty()) identity.cuda_version = cuda.cuda_version;
  }
  if (identity.driver_version.empty()) {
    identity.driver_version = kernel_driver_version(sources.kernel);
  }
  return identity;
}

}  // namespace

Environment local_environment(const std::string& uuid, const IdentitySources& sources) {
  Environment environment;
  if (uuid.starts_with("host:")) {
    environment["gpu"] = "none";
    environment["cpu"] = cpu_model();
  } else {
    const NvmlIdentity identity = identity_of(uuid, sources);
    environment["gpu"] = identity.name;
    environment["compute_capability"] = identity.compute_capability;
    environment["driver"] = identity.driver_version;
    environment["cuda"] = identity.cuda_version;
  }
  std::vector<std::string> unknown;
  for (auto& [name, value] : environment) {
    if (!value.empty()) continue;
    value = kUnknown;
    unknown.push_back(name);
  }
  if (!unknown.empty()) {
    log::warn(
        fmt::format("what warm-ups leave will not be used again: nothing here tells {} of {} "
                    "(in a container, add utility to NVIDIA_DRIVER_CAPABILITIES)",
                    fmt::join(unknown, ", "), uuid));
  }
  return environment;
}

}  // namespace preload::artifact
