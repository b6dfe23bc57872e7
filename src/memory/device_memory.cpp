// SPDX-License-Identifier: Apache-2.0
#include "memory/device_memory.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "memory/cuda_driver.cuh"
#include "memory/device.hpp"

namespace preload {

namespace {

std::uint64_t bytes_of(const std::vector<SlabSpec>& slabs) {
  std::uint64_t bytes = 0;
  for (const SlabSpec& spec : slabs) bytes += spec.bytes;
  return bytes;
}

std::string shortage(std::uint64_t needed, int ordinal) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's free memory");
  std::string device = fmt::format("CUDA device {}", ordinal);
  std::string holders;
  for (const Device& candidate : visible_devices()) {
    if (candidate.ordinal != ordinal) continue;
    device = fmt::format("{} ({}, CUDA device {})", candidate.uuid, candidate.name, ordinal);
    holders = describe_holders(candidate);
  }
  return fmt::format("the weights need {} on {}, but only {} of {} are free{}{}",
                     format_bytes(needed), device, format_bytes(free_bytes),
                     format_bytes(total_bytes), holders.empty() ? "" : "; held by ", holders);
}

constexpr const char* kRemedy = ": stop what holds it, or shard over more GPUs";

}  // namespace

void require_device_memory(const std::vector<SlabSpec>& slabs, int device) {
  set_device(device);
  const std::uint64_t needed = bytes_of(slabs);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the GPU's free memory");
  if (needed > free_bytes) throw Error(Errc::kMemory, shortage(needed, device) + kRemedy);
}

void throw_out_of_device_memory(const std::vector<SlabSpec>& slabs, int device,
                                const std::string& cause) {
  throw Error(Errc::kMemory,
              fmt::format("{} ({}){}", shortage(bytes_of(slabs), device), cause, kRemedy));
}

}  // namespace preload
