// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/launcher.hpp"
#include "doctor/check.hpp"
#include "doctor/gpu_facts.hpp"
#include "doctor/variables.hpp"

namespace preload::doctor {

// The CUDA toolkit that this was built with: 12040 is 12.4; 0: none.
int built_for_cuda() noexcept;

// Driver, its two halves and the toolkit that this was built with.
Check check_driver(const GpuFacts& facts, int built_for_cuda);

// $CUDA_VISIBLE_DEVICES against what CUDA shows; where MIG is on, what that leaves.
Check check_visible_gpus(const GpuFacts& facts, const Variables& variables);

// The GPU that this rank would take: the one it sees, else that of its local rank.
Check check_binding(const GpuFacts& facts, const Launcher& launcher);

// Compute mode of the GPUs that are visible, and MPS.
Check check_compute_mode(const GpuFacts& facts, const Variables& variables);

// NCCL, which ranks need only where GPUs cannot map each other's memory. `library` is what was
// looked for.
Check check_nccl(const GpuFacts& facts, const std::string& library);

// Free memory of each visible GPU and who holds the rest; `needed_bytes` is what a rank is to hold.
Checks check_gpu_memory(const GpuFacts& facts, std::optional<std::uint64_t> needed_bytes,
                        const std::function<std::string(unsigned pid)>& describe_process);

// "pid 42 (python3, uid 1000 (bob))", as far as this process may know.
std::string describe_process(unsigned pid);

}  // namespace preload::doctor
