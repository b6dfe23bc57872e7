// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_vmm.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/bytes.hpp"
#include "memory/cuda_driver.cuh"
#include "memory/device.hpp"
#include "memory/device_memory.hpp"

namespace preload {

namespace {

CUmemAllocationProp allocation_properties(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

void require_support(int ordinal) {
  const CudaDriver& driver = cuda_driver();
  CUdevice device = 0;
  check_cuda(driver.device(&device, ordinal), "opening the GPU");
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int supported = 0;
    check_cuda(driver.device_attribute(&supported, attribute, device),
               "reading the GPU's abilities");
    if (supported == 0) {
      throw Error(Errc::kDevice,
                  fmt::format("CUDA device {} cannot share virtual memory by file descriptors: use "
                              "--export cuda-ipc",
                              ordinal));
    }
  }
}

}  // namespace

CudaVmm::CudaVmm(const std::vector<SlabSpec>& slabs, int device) : device_(device) {
  require_device_memory(slabs, device);
  require_support(device);
  slabs_.reserve(slabs.size());
  for (const SlabSpec& spec : slabs) slabs_.push_back({spec});
  try {
    for (Slab& slab : slabs_) allocate(slab);
  } catch (const Error& error) {
    unmap();
    if (error.code() != Errc::kMemory) throw;
    throw_out_of_device_memory(slabs, device, error.what());
  }
}

void CudaVmm::allocate(Slab& slab) {
  const CudaDriver& driver = cuda_driver();
  const CUmemAllocationProp properties = allocation_properties(device_);
  std::size_t granularity = 0;
  check_cuda(driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
             "asking for the GPU's allocation granularity");
  if (granularity == 0 || slab.spec.bytes % granularity != 0) {
    throw Error(Errc::kDevice,
                fmt::format("a slab of {} bytes is no multiple of the GPU's allocation granularity "
                            "of {}: use --export cuda-ipc",
                            slab.spec.bytes, granularity));
  }
  CUmemGenericAllocationHandle allocation = 0;
  check_cuda(driver.mem_create(&allocation, slab.spec.bytes, &properties, 0),
             fmt::format("allocating {} of GPU memory", format_bytes(slab.spec.bytes)));
  slab.allocation = allocation;

  CUdeviceptr address = 0;
  check_cuda(driver.address_reserve(&address, slab.spec.bytes, 0, 0, 0),
             "reserving GPU address space");
  slab.address = address;
  check_cuda(driver.mem_map(address, slab.spec.bytes, 0, allocation, 0), "mapping GPU memory");
  slab.mapped = true;

  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_cuda(driver.set_access(address, slab.spec.bytes, &access, 1), "making GPU memory writable");
}

std::byte* CudaVmm::address(std::uint32_t slab) const noexcept {
  return reinterpret_cast<std::byte*>(slabs_[slab].address);
}

std::vector<Fd> CudaVmm::share() const {
  std::vector<Fd> fds;
  for (const Slab& slab : slabs_) {
    int fd = -1;
    check_cuda(cuda_driver().export_handle(&fd, slab.allocation,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "exporting GPU memory as a file descriptor");
    fds.emplace_back(fd);
    check_sys(fcntl(fd, F_SETFD, FD_CLOEXEC), "marking a GPU memory descriptor close-on-exec");
  }
  return fds;
}

std::vector<SlabHandle> CudaVmm::export_handles() {
  std::vector<Fd> fds = share();
  std::vector<SlabHandle> handles;
  handles.reserve(slabs_.size());
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    SlabHandle handle;
    handle.kind = HandleKind::kVmm;
    handle.cls = slabs_[i].spec.cls;
    handle.bytes = slabs_[i].spec.bytes;
    handle.fd = std::move(fds[i]);
    handles.push_back(std::move(handle));
  }
  return handles;
}

void CudaVmm::unmap() noexcept {
  std::string reason;
  const CudaDriver* driver = find_cuda_driver(reason);
  for (Slab& slab : slabs_) {
    // A failure here means that the context died before: then the driver has freed it all.
    if (slab.mapped) driver->mem_unmap(slab.address, slab.spec.bytes);
    if (slab.address != 0) driver->address_free(slab.address, slab.spec.bytes);
    if (slab.allocation != 0) driver->mem_release(slab.allocation);
    slab.mapped = false;
    slab.address = 0;
    slab.allocation = 0;
  }
}

PeerVmm::PeerVmm(const std::vector<SlabSpec>& slabs, const std::vector<Fd>& fds, int device,
                 bool writable) {
  set_device(device);
  for (const SlabSpec& slab : slabs) slabs_.push_back({.bytes = slab.bytes});
  try {
    for (std::size_t i = 0; i < slabs_.size(); ++i) map(slabs_[i], fds[i].get(), device, writable);
  } catch (...) {
    unmap();
    throw;
  }
}

void PeerVmm::map(Slab& slab, int fd, int device, bool writable) {
  const CudaDriver& driver = cuda_driver();
  CUmemGenericAllocationHandle allocation = 0;
  // The driver takes the descriptor's number in place of a pointer.
  void* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  check_cuda(driver.import_handle(&allocation, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             "importing another process's GPU memory");
  // The mapping keeps the memory: this reference to the allocation is dropped at once.
  struct Release {
    const CudaDriver& driver;
    CUmemGenericAllocationHandle allocation;
    ~Release() { driver.mem_release(allocation); }
  } release{driver, allocation};
  CUdeviceptr address = 0;
  check_cuda(driver.address_reserve(&address, slab.bytes, 0, 0, 0), "reserving GPU address space");
  slab.address = address;
  check_cuda(driver.mem_map(address, slab.bytes, 0, allocation, 0),
             "mapping another process's GPU memory");
  slab.mapped = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
  check_cuda(driver.set_access(address, slab.bytes, &access, 1),
             "gaining access to another process's GPU memory (on another GPU: is there a direct "
             "link between the two?)");
}

std::byte* PeerVmm::address(std::uint32_t slab) const noexcept {
  return reinterpret_cast<std::byte*>(slabs_[slab].address);
}

void PeerVmm::unmap() noexcept {
  std::string reason;
  const CudaDriver* driver = find_cuda_driver(reason);
  for (Slab& slab : slabs_) {
    if (slab.mapped) driver->mem_unmap(slab.address, slab.bytes);
    if (slab.address != 0) driver->address_free(slab.address, slab.bytes);
  }
}

}  // namespace preload
