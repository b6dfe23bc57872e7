// SPDX-License-Identifier: Apache-2.0
// The driver's two libraries in one, of a machine that does not exist: GPU 0 is whole, GPU 1 is cut
// into MIG instances of which CUDA shows one. $FAKE_NVIDIA is `mismatch`, `broken` or `hidden`, or
// not set.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

std::string_view mode() {
  const char* text = std::getenv("FAKE_NVIDIA");
  return text == nullptr ? "" : text;
}

int put(const char* text, char* out, unsigned size) {
  std::snprintf(out, size, "%s", text);
  return 0;
}

unsigned index_of(void* device) {
  return static_cast<unsigned>(reinterpret_cast<std::size_t>(device)) - 1;
}

struct Memory {
  unsigned long long total, free, used;
};
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int cuInit(unsigned) {
  if (mode() == "broken") return 999;
  return mode() == "hidden" ? 100 : 0;
}
int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* bytes, int device) {
  std::memset(bytes, device == 0 ? 0x11 : 0x33, 16);
  return 0;
}
int cuDeviceGetUuid(unsigned char* bytes, int device) {
  std::memset(bytes, device == 0 ? 0x11 : 0x22, 16);
  return 0;
}
int cuDeviceGetName(char* out, int size, int) {
  return put("Fake H200 of CUDA's", out, static_cast<unsigned>(size));
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 1 : 0;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a fake error";
  return 0;
}

int ncclGetVersion(int* version) {
  *version = 22803;
  return 0;
}

int nvmlInit_v2() { return mode() == "mismatch" ? 18 : 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* out, unsigned size) { return put("550.54.15", out, size); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const std::string_view text = uuid;
  if (!text.starts_with("GPU-11111111") && !text.starts_with("GPU-22222222")) return 6;
  *device = reinterpret_cast<void*>(static_cast<std::size_t>(text[4] - '0'));
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned size) {
  return put(index_of(device) == 0 ? "GPU-11111111-1111-1111-1111-111111111111"
                                   : "GPU-22222222-2222-2222-2222-222222222222",
             out, size);
}
int nvmlDeviceGetName(void*, char* out, unsigned size) { return put("Fake H200", out, size); }
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {100, 40, 60};
  return 0;
}
int nvmlDeviceGetComputeMode(void* device, int* compute_mode) {
  *compute_mode = index_of(device) == 0 ? 3 : 0;
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = index_of(device);
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, Process* processes) {
  *count = 2;
  processes[0] = {4242, 50, 0, 0};
  processes[1] = {4243, ~0ULL, 0, 0};
  return 0;
}
}
#pragma GCC visibility pop
