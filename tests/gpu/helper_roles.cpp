// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "fill.hpp"
#include "gpu/gpu_test.hpp"
#include "gpu/helper_process.hpp"
#include "memory/device.hpp"
#include "memory/slab.hpp"

// What the GPU tests have other processes do.
namespace preload::test {

namespace {

constexpr int kSocket = 3;
constexpr std::uint64_t kSlabBytes = 64 * kMiB;

// Exports one slab of random bytes, seed 1, and waits to be killed.
int export_vmm() {
  auto memory = allocate_slabs(HandleKind::kVmm, {{kSlabBytes, TensorClass::kShared}}, 0);
  write_device(memory->address(0), random_bytes(1, kSlabBytes));
  const auto handles = memory->export_handles();
  send_message(kSocket, "exported", {handles[0].fd.get()});
  pause();
  return 1;
}

// As a rank does: allocates, writes, exports, and keeps nothing but the descriptor.
int serve_vmm() {
  auto memory = allocate_slabs(HandleKind::kVmm, {{kSlabBytes, TensorClass::kShared}}, 0);
  write_device(memory->address(0), random_bytes(1, kSlabBytes));
  const auto handles = memory->export_handles();
  memory->unmap();
  memory.reset();
  give_up_context(0);
  send_message(kSocket, "serving", {handles[0].fd.get()});
  pause();
  return 1;
}

// Writes to a read-only mapping: 42 when the GPU faults, as it should.
int write_read_only() {
  const Message message = receive_message(kSocket);
  const Imported slab(message.fds.at(0).get(), kSlabBytes, false);
  if (read_device(slab.data(), 4096) != random_bytes(1, 4096)) return 2;
  kernels::fill_pattern(slab.data(), 4096, 0x0101010101010101, nullptr);
  return cudaDeviceSynchronize() == cudaErrorIllegalAddress ? 42 : 3;
}

// Opens a classic handle and compares; the exporter lives meanwhile.
int read_ipc() {
  const Message message = receive_message(kSocket);
  cudaIpcMemHandle_t handle{};
  if (message.text.size() != sizeof handle.reserved) return 2;
  std::memcpy(handle.reserved, message.text.data(), sizeof handle.reserved);
  void* address = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&address, handle, cudaIpcMemLazyEnablePeerAccess), "opening");
  const bool same = read_device(address, kSlabBytes) == random_bytes(1, kSlabBytes);
  check_cuda(cudaIpcCloseMemHandle(address), "closing");
  return same ? 0 : 3;
}

}  // namespace

int run_helper_role(int argc, char** argv) {
  if (argc != 2 || std::strncmp(argv[1], "--helper=", 9) != 0) return -1;
  const std::string role = argv[1] + 9;
  try {
    set_device(0);
    if (role == "export_vmm") return export_vmm();
    if (role == "serve_vmm") return serve_vmm();
    if (role == "write_read_only") return write_read_only();
    if (role == "read_ipc") return read_ipc();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "helper %s: %s\n", role.c_str(), error.what());
    return 1;
  }
  return 127;
}

}  // namespace preload::test
