// SPDX-License-Identifier: Apache-2.0
#include "memory/slab.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>

#include "gpu/gpu_test.hpp"
#include "gpu/helper_process.hpp"
#include "memory/device.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr std::uint64_t kSlabBytes = 64 * kMiB;

std::uint64_t free_device_bytes() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory");
  return free_bytes;
}

class CudaSlabs : public GpuTest {};

TEST_F(CudaSlabs, AreSeenByADeviceWithUuidNameAndMemory) {
  const Device device = visible_devices().at(0);
  EXPECT_THAT(device.uuid,
              MatchesRegex("(gpu|mig)-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(device.uuid.size(), 4 + 36U);
  EXPECT_FALSE(device.name.empty());
  EXPECT_GT(device.total_bytes, kGiB);
  EXPECT_LE(device.free_bytes.value_or(0), device.total_bytes + kGiB);
}

TEST_F(CudaSlabs, VmmOutlivesAnExporterThatIsKilled) {
  Fd slab;
  {
    HelperProcess exporter("export_vmm");
    Message message = receive_message(exporter.socket());
    slab = std::move(message.fds.at(0));
    exporter.kill_hard();
  }
  const Imported imported(slab.get(), kSlabBytes, false);
  EXPECT_TRUE(read_device(imported.data(), kSlabBytes) == random_bytes(1, kSlabBytes));
}

TEST_F(CudaSlabs, VmmIsFreedWithItsLastDescriptor) {
  const std::uint64_t before = settled_device_use();
  Fd slab;
  {
    HelperProcess exporter("export_vmm");
    slab = std::move(receive_message(exporter.socket()).fds.at(0));
  }
  EXPECT_GE(settled_device_use(), before + kSlabBytes);
  slab.reset();
  EXPECT_LE(settled_device_use(), before + kMiB);
}

TEST_F(CudaSlabs, VmmDescriptorsAreClosedOnExec) {
  auto memory = allocate_slabs(HandleKind::kVmm, {{kSlabBytes, TensorClass::kShared}}, kDevice);
  const auto handles = memory->export_handles();
  EXPECT_EQ(fcntl(handles.at(0).fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(CudaSlabs, AServingProcessHoldsNextToNothingAboveTheSlabs) {
  const std::uint64_t before = settled_device_use();
  HelperProcess server("serve_vmm");
  const Message message = receive_message(server.socket());
  const std::uint64_t serving = settled_device_use();
  EXPECT_GE(serving, before + kSlabBytes);
  const std::uint64_t above = serving - before - kSlabBytes;
  RecordProperty("bytes_above_the_slabs", std::to_string(above));
  EXPECT_LE(above, 16 * kMiB);
  const Imported imported(message.fds.at(0).get(), kSlabBytes, false);
  EXPECT_TRUE(read_device(imported.data(), kSlabBytes) == random_bytes(1, kSlabBytes));
}

TEST_F(CudaSlabs, AWriteToAReadOnlyMappingFaultsTheWriterAlone) {
  auto memory = allocate_slabs(HandleKind::kVmm, {{kSlabBytes, TensorClass::kShared}}, kDevice);
  write_device(memory->address(0), random_bytes(1, kSlabBytes));
  const auto handles = memory->export_handles();
  HelperProcess writer("write_read_only");
  send_message(writer.socket(), "slab", {handles.at(0).fd.get()});
  EXPECT_EQ(writer.wait(), 42);
  EXPECT_TRUE(read_device(memory->address(0), kSlabBytes) == random_bytes(1, kSlabBytes));
}

TEST_F(CudaSlabs, CudaIpcIsReadByAnotherProcess) {
  auto memory = allocate_slabs(HandleKind::kCudaIpc, {{kSlabBytes, TensorClass::kShared}}, kDevice);
  write_device(memory->address(0), random_bytes(1, kSlabBytes));
  const auto handles = memory->export_handles();
  ASSERT_EQ(handles.at(0).ipc_bytes.size(), 64U);
  memory->unmap();  // must keep what the handle names
  HelperProcess reader("read_ipc");
  send_message(reader.socket(), handles[0].ipc_bytes);
  EXPECT_EQ(reader.wait(), 0);
}

TEST_F(CudaSlabs, ThatCannotFitAreRefusedWithNumbersAndKeepNothing) {
  const std::uint64_t before = free_device_bytes();
  for (const HandleKind kind : {HandleKind::kVmm, HandleKind::kCudaIpc}) {
    try {
      allocate_slabs(
          kind, {{kSlabBytes, TensorClass::kShared}, {kGiB * 1024, TensorClass::kShared}}, kDevice);
      FAIL() << "a TiB of GPU memory was found";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kMemory);
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("1.00 TiB"), HasSubstr("free"), HasSubstr("shard over more")));
    }
  }
  EXPECT_EQ(free_device_bytes(), before);
}

}  // namespace
}  // namespace preload::test
