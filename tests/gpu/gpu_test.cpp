// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu_test.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "memory/device.hpp"

namespace preload::test {

void GpuTest::SetUp() {
  if (visible_device_count() > 0) {
    set_device(kDevice);
    return;
  }
  const char* required = std::getenv("PRELOAD_REQUIRE_GPU");
  if (required != nullptr && std::strcmp(required, "1") == 0) {
    FAIL() << "PRELOAD_REQUIRE_GPU=1, but " << no_devices_reason();
  }
  GTEST_SKIP() << no_devices_reason();
}

OnDevice::OnDevice(const std::string& bytes, std::uint64_t lead)
    : memory_(allocate_device(bytes.size() + lead + 16, "a test's memory")),
      lead_(lead),
      bytes_(bytes.size()) {
  write_device(data(), bytes);
}

std::string OnDevice::read() const { return read_device(data(), bytes_); }

std::string read_device(const void* address, std::uint64_t bytes) {
  std::string out(bytes, '\0');
  check_cuda(cudaMemcpy(out.data(), address, bytes, cudaMemcpyDeviceToHost), "reading back");
  return out;
}

void write_device(void* address, const std::string& bytes) {
  check_cuda(cudaMemcpy(address, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "writing");
}

std::string random_bytes(std::uint64_t seed, std::uint64_t count) {
  std::mt19937_64 random(seed);
  std::string bytes(count + 8, '\0');
  for (std::uint64_t at = 0; at < count; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  bytes.resize(count);
  return bytes;
}

std::uint64_t settled_device_use() {
  const auto use = [] { return device_used_bytes(visible_devices().at(0)); };
  auto last = use();
  if (!last) {
    ADD_FAILURE() << "NVML does not say how much device memory is in use";
    return 0;
  }
  // Memory of a process that has just ended is given back a little later.
  for (int same = 0, tries = 0; same < 5 && tries < 100; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto now = use();
    same = now == last ? same + 1 : 0;
    last = now;
  }
  return *last;
}

Imported::Imported(int fd, std::uint64_t bytes, bool writable) : bytes_(bytes) {
  const CudaDriver& driver = cuda_driver();
  CUmemGenericAllocationHandle allocation = 0;
  check_cuda(
      driver.import_handle(&allocation, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),
                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "importing");
  check_cuda(driver.address_reserve(&address_, bytes, 0, 0, 0), "reserving");
  check_cuda(driver.mem_map(address_, bytes, 0, allocation, 0), "mapping");
  check_cuda(driver.mem_release(allocation), "releasing");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 0;
  access.flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  check_cuda(driver.set_access(address_, bytes, &access, 1), "setting access");
}

Imported::~Imported() {
  cuda_driver().mem_unmap(address_, bytes_);
  cuda_driver().address_free(address_, bytes_);
}

}  // namespace preload::test
