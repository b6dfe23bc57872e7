// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/unique.hpp"

// The part of the CUDA driver API that a client needs, with declarations of our own: the library
// builds without a toolkit and links no driver. Values and layouts are those of the driver's ABI.
namespace preload::cu {

using Result = int;  // CUresult; 0 is success
using Device = int;
using Pointer = unsigned long long;  // CUdeviceptr
using Context = void*;
using Stream = void*;
using Allocation = unsigned long long;  // CUmemGenericAllocationHandle

struct Uuid {
  std::array<std::uint8_t, 16> bytes{};
  friend bool operator==(const Uuid&, const Uuid&) = default;
};
struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
enum class Access : int { kRead = 1, kReadWrite = 3 };
struct AccessDescription {
  Location location;
  Access flags = Access::kRead;
};
struct AllocationProperties {  // CUmemAllocationProp
  int type = 1;                // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;        // not to be exported
  Location location;
  void* win32_metadata = nullptr;
  std::array<std::uint8_t, 8> flags{};
};
struct IpcHandle {
  std::array<char, 64> bytes{};
};
inline constexpr int kPosixFd = 1;           // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
inline constexpr unsigned kIpcLazyPeer = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

struct DlTraits {
  using Handle = void*;
  static void* null() noexcept { return nullptr; }
  static void close(void* handle) noexcept;
};

// The driver's functions by name, looked up once. Throws Error(kDevice) when there is no driver, no
// GPU, or a function is missing (a driver older than CUDA 11.4).
class Driver {
 public:
  Driver();

  // Throws Error(kDevice) with `what` and the driver's name and text of the code.
  void check(Result result, std::string_view what,
             std::source_location where = std::source_location::current()) const;
  std::string text(Result result) const;  // "CUDA_ERROR_INVALID_VALUE: invalid argument"

 private:
  template <class Function>
  Function* find(const char* name) const;
  Unique<DlTraits> library_;

 public:
  Result (*init)(unsigned);
  Result (*get_error_name)(Result, const char**);
  Result (*get_error_string)(Result, const char**);
  Result (*device_get_count)(int*);
  Result (*device_get)(Device*, int);
  Result (*device_get_uuid)(Uuid*, Device);     // of the whole GPU
  Result (*device_get_uuid_v2)(Uuid*, Device);  // of the MIG instance where there is one
  Result (*primary_retain)(Context*, Device);
  Result (*primary_release)(Device);
  Result (*ctx_push)(Context);
  Result (*ctx_pop)(Context*);
  Result (*ctx_synchronize)();
  Result (*import_shareable)(Allocation*, void*, int);
  Result (*release_allocation)(Allocation);
  Result (*address_reserve)(Pointer*, std::size_t, std::size_t, Pointer, unsigned long long);
  Result (*address_free)(Pointer, std::size_t);
  Result (*map)(Pointer, std::size_t, std::size_t, Allocation, unsigned long long);
  Result (*unmap)(Pointer, std::size_t);
  Result (*set_access)(Pointer, std::size_t, const AccessDescription*, std::size_t);
  Result (*mem_create)(Allocation*, std::size_t, const AllocationProperties*, unsigned long long);
  Result (*mem_info)(std::size_t* free, std::size_t* total);
  Result (*mem_alloc)(Pointer*, std::size_t);
  Result (*mem_free)(Pointer);
  Result (*copy_device_to_device)(Pointer, Pointer, std::size_t);
  Result (*copy_device_to_host_async)(void*, Pointer, std::size_t, Stream);
  Result (*host_alloc)(void**, std::size_t, unsigned);
  Result (*host_free)(void*);
  Result (*stream_create)(Stream*, unsigned);
  Result (*stream_synchronize)(Stream);
  Result (*stream_destroy)(Stream);
  Result (*ipc_open)(Pointer*, IpcHandle, unsigned);
  Result (*ipc_close)(Pointer);
};

}  // namespace preload::cu
