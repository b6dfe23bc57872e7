// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <functional>
#include <string>

#include "base/unique.hpp"

// NCCL, opened late: a binary runs on machines without it, and with the NCCL that its user names.
namespace preload {

struct NcclLibraryTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle handle) noexcept;
};

class NcclLibrary {
 public:
  // `path`: a file or a name for the dynamic linker; empty: the usual name. Throws Error(kLauncher)
  // when it cannot be opened or lacks what is needed.
  explicit NcclLibrary(const std::string& path);

  int version() const noexcept { return version_; }  // as NCCL counts: 22803 is 2.28.3
  // Throws Error(kLauncher) with NCCL's own text when `result` is neither success nor in progress.
  void check(ncclResult_t result, const char* what, ncclComm_t comm = nullptr) const;
  // How a communicator is: whether it is at work, ncclInProgress, on what it was asked. Throws what
  // went wrong with it.
  ncclResult_t state(ncclComm_t comm, const char* what) const;
  // Until NCCL has done on the host what it was asked; `look` is called meanwhile, and may throw.
  void settle(ncclComm_t comm, const char* what, const std::function<void()>& look) const;

  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&::ncclCommFinalize) comm_finalize = nullptr;
  decltype(&::ncclCommDestroy) comm_destroy = nullptr;
  decltype(&::ncclCommAbort) comm_abort = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) recv = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;

 private:
  Unique<NcclLibraryTraits> handle_;
  decltype(&::ncclGetErrorString) get_error_string_ = nullptr;
  decltype(&::ncclGetLastError) get_last_error_ = nullptr;
  int version_ = 0;
};

// Calls of NCCL that begin together. One that fails on the way leaves no group open: what is given
// up later would wait for its end.
class NcclGroup {
 public:
  NcclGroup(const NcclLibrary& library, const char* what) : library_(library), what_(what) {
    library_.check(library_.group_start(), what_);
    open_ = true;
  }
  ~NcclGroup() {
    if (open_) library_.group_end();
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  void end() {
    open_ = false;
    library_.check(library_.group_end(), what_);
  }

 private:
  const NcclLibrary& library_;
  const char* what_;
  bool open_ = false;
};

}  // namespace preload
