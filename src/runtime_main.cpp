// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "run/runtime.hpp"
#include "warmup/backend.hpp"

// The part of serve, bench and tune that needs MPI and CUDA: `preload` continues here, since it
// links neither itself.
int main(int argc, char** argv) {
  const int status = preload::run::run_runtime(argc, argv, preload::warmup::gpu_backend);
  // After a failure MPI is not finalised: its exit handlers could wait for ranks that are gone.
  if (status != 0) std::_Exit(status);
  return 0;
}
