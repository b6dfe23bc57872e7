// SPDX-License-Identifier: Apache-2.0
// A CUDA driver by name (libcuda.so.1) that knows the name of one GPU.

#include <cstdio>

#pragma GCC visibility push(default)
extern "C" {
int cuCtxGetDevice(int* device) {
  *device = 3;
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU %d", device);
  return 0;
}
}
#pragma GCC visibility pop
