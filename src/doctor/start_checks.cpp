// SPDX-License-Identifier: Apache-2.0
#include "doctor/start_checks.hpp"

#include "doctor/gpu_checks.hpp"
#include "doctor/machine_checks.hpp"
#include "doctor/network_checks.hpp"
#include "doctor/user_checks.hpp"

namespace preload::doctor {

Checks start_checks(bool cuda, bool several) {
  const Variables variables = Variables::of_this_process();
  Checks checks;
  bool gpus = false;
  if (cuda) {
    DriverPaths paths;
    paths.nccl.clear();  // large, and not always needed
    const GpuFacts facts = gather_gpu_facts(paths);
    gpus = !facts.visible.empty();
    checks.push_back(check_library_path(variables));
    checks.push_back(check_driver(facts, built_for_cuda()));
    checks.push_back(check_visible_gpus(facts, variables));
    if (gpus) checks.push_back(check_compute_mode(facts, variables));
  }
  const MachineFacts machine = gather_machine_facts();
  checks.push_back(check_limits(machine, gpus));
  checks.push_back(check_descriptors(machine));
  if (several) {
    checks.push_back(check_network(gather_interfaces(), gather_adapters(), variables));
  }
  return checks;
}

}  // namespace preload::doctor
