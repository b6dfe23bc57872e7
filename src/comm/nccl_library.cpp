// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"

namespace preload {
namespace {

constexpr const char* kUsualName = "libnccl.so.2";
constexpr auto kPoll = std::chrono::microseconds(50);

template <class Function>
void resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  throw Error(Errc::kLauncher,
              fmt::format("the NCCL library has no {}: NCCL 2.18 or newer is needed; name one with "
                          "--nccl-library",
                          name));
}

}  // namespace

// NCCL's threads may outlive its communicators by moments: it stays loaded.
void NcclLibraryTraits::close(Handle) noexcept {}

NcclLibrary::NcclLibrary(const std::string& path) {
  const std::string name = path.empty() ? kUsualName : path;
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(
        Errc::kLauncher,
        fmt::format("cannot open NCCL: {}; name the library with --nccl-library", dlerror()));
  }
  handle_ = Unique<NcclLibraryTraits>(library);
  resolve(library, "ncclGetErrorString", get_error_string_);
  resolve(library, "ncclGetLastError", get_last_error_);
  resolve(library, "ncclGetUniqueId", get_unique_id);
  resolve(library, "ncclCommInitRankConfig", comm_init_rank_config);
  resolve(library, "ncclCommGetAsyncError", comm_get_async_error);
  resolve(library, "ncclCommFinalize", comm_finalize);
  resolve(library, "ncclCommDestroy", comm_destroy);
  resolve(library, "ncclCommAbort", comm_abort);
  resolve(library, "ncclGroupStart", group_start);
  resolve(library, "ncclGroupEnd", group_end);
  resolve(library, "ncclSend", send);
  resolve(library, "ncclRecv", recv);
  resolve(library, "ncclAllReduce", all_reduce);
  resolve(library, "ncclAllGather", all_gather);
  resolve(library, "ncclReduceScatter", reduce_scatter);
  resolve(library, "ncclBroadcast", broadcast);
  resolve(library, "ncclReduce", reduce);
  decltype(&::ncclGetVersion) get_version = nullptr;
  resolve(library, "ncclGetVersion", get_version);
  check(get_version(&version_), "asking NCCL for its version");
}

void NcclLibrary::check(ncclResult_t result, const char* what, ncclComm_t comm) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const detail = comm == nullptr ? nullptr : get_last_error_(comm);
  throw Error(
      Errc::kLauncher,
      fmt::format("{}: NCCL: {}{}{}; NCCL_DEBUG=WARN shows more", what, get_error_string_(result),
                  detail == nullptr || *detail == 0 ? "" : ": ", detail == nullptr ? "" : detail));
}

ncclResult_t NcclLibrary::state(ncclComm_t comm, const char* what) const {
  ncclResult_t state = ncclSuccess;
  check(comm_get_async_error(comm, &state), what, comm);
  check(state, what, comm);
  return state;
}

void NcclLibrary::settle(ncclComm_t comm, const char* what,
                         const std::function<void()>& look) const {
  while (state(comm, what) == ncclInProgress) {
    look();
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace preload
