// SPDX-License-Identifier: Apache-2.0
#include "memory/slab.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "memory/device.hpp"

namespace preload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<SlabSpec> two_slabs() {
  return {{2 * kMiB, TensorClass::kShared}, {4 * kMiB, TensorClass::kPrivate}};
}

TEST(HostSlabs, CarryWhatWasWrittenToWhoeverMapsThem) {
  auto memory = allocate_slabs(HandleKind::kHost, two_slabs(), -1);
  EXPECT_EQ(memory->kind(), HandleKind::kHost);
  std::memcpy(memory->address(0), "first", 5);
  std::memcpy(memory->address(1) + 4 * kMiB - 4, "last", 4);
  const auto handles = memory->export_handles();
  memory->unmap();
  memory.reset();

  ASSERT_EQ(handles.size(), 2U);
  EXPECT_EQ(handles[0].kind, HandleKind::kHost);
  EXPECT_EQ(handles[1].cls, TensorClass::kPrivate);
  EXPECT_EQ(handles[1].bytes, 4 * kMiB);
  const Mapping first = map_fd(handles[0].fd.get(), handles[0].bytes, false, "slab");
  const Mapping last = map_fd(handles[1].fd.get(), handles[1].bytes, false, "slab");
  EXPECT_EQ(std::memcmp(first.data(), "first", 5), 0);
  EXPECT_EQ(std::memcmp(last.data() + 4 * kMiB - 4, "last", 4), 0);
}

TEST(HostSlabs, AreFreshZeros) {
  const auto memory = allocate_slabs(HandleKind::kHost, two_slabs(), -1);
  const std::string zeros(2 * kMiB, '\0');
  EXPECT_EQ(std::memcmp(memory->address(0), zeros.data(), zeros.size()), 0);
}

TEST(HostSlabs, CannotBeChangedThroughAHandle) {
  auto memory = allocate_slabs(HandleKind::kHost, two_slabs(), -1);
  const auto handles = memory->export_handles();
  const int fd = handles[0].fd.get();
  EXPECT_TRUE(is_sealed(fd));
  EXPECT_EQ(ftruncate(fd, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(fd, 64 * kMiB), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(HostSlabs, CanBeCopiedPrivatelyByAClientThatWrites) {
  auto memory = allocate_slabs(HandleKind::kHost, two_slabs(), -1);
  std::memcpy(memory->address(1), "ours", 4);
  const auto handles = memory->export_handles();
  void* copy = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE, handles[1].fd.get(), 0);
  ASSERT_NE(copy, MAP_FAILED);
  std::memcpy(copy, "mine", 4);
  EXPECT_EQ(std::memcmp(memory->address(1), "ours", 4), 0);
  munmap(copy, kMiB);
}

TEST(HostSlabs, AreClosedOnExec) {
  auto memory = allocate_slabs(HandleKind::kHost, two_slabs(), -1);
  for (const SlabHandle& handle : memory->export_handles()) {
    EXPECT_EQ(fcntl(handle.fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(HostSlabs, AreRefusedWithNeededAndAvailableWhenTheyCannotFit) {
  try {
    allocate_slabs(HandleKind::kHost, {{1ULL << 50, TensorClass::kShared}}, -1);
    FAIL() << "a PiB of memory was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kMemory);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(format_bytes(1ULL << 50)), HasSubstr("available"),
                                    HasSubstr("shard over more ranks")));
  }
}

TEST(CudaSlabs, AreRefusedWithAReasonWhereThereIsNoDevice) {
  if (visible_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(no_devices_reason(), testing::Not(testing::IsEmpty()));
  for (const HandleKind kind : {HandleKind::kVmm, HandleKind::kCudaIpc}) {
    try {
      allocate_slabs(kind, two_slabs(), 0);
      FAIL() << "GPU memory without a GPU";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kDevice);
    }
  }
  EXPECT_THROW(set_device(0), Error);
  EXPECT_TRUE(visible_devices().empty());
}

TEST(HandleKinds, HaveNames) {
  EXPECT_EQ(handle_kind_name(HandleKind::kHost), "host");
  EXPECT_EQ(handle_kind_name(HandleKind::kVmm), "vmm");
  EXPECT_EQ(handle_kind_name(HandleKind::kCudaIpc), "cuda-ipc");
}

TEST(DeviceUuid, IsWrittenLowerCaseInGroups) {
  const std::array<unsigned char, 16> bytes = {0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF,
                                               0xFE, 0xDC, 0xBA, 0x98, 0x76, 0x54, 0x32, 0x10};
  EXPECT_EQ(format_uuid("gpu", bytes), "gpu-01234567-89ab-cdef-fedc-ba9876543210");
  EXPECT_EQ(format_uuid("mig", bytes), "mig-01234567-89ab-cdef-fedc-ba9876543210");
}

}  // namespace
}  // namespace preload
