// SPDX-License-Identifier: Apache-2.0
// An NCCL without GPUs, for jobs on one machine: communicators over files in $FAKE_NCCL_DIR that
// are mapped, collectives that move nothing and take the time that their algorithm and protocol are
// given here, a tuner plugin that is asked as NCCL asks it. $FAKE_NCCL says what goes wrong:
// `refuse:RANK` and `hang:RANK` in forming a communicator, `die:RANK:N` and `fail:RANK:N` in the
// N-th collective. With NCCL_COMM_BLOCKING=0 its calls are not done when they return, and one too
// early is refused.

#include <dlfcn.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "fake_stream.hpp"

namespace {

using preload::test::FakeStream;

constexpr int kAlgorithms = 7, kProtocols = 3;
constexpr int kTree = 0, kRing = 1, kLl = 0, kSimple = 2;
constexpr auto kPoll = std::chrono::microseconds(20);

// Version 4 of the interface, as NCCL publishes it (src/include/plugin/tuner/tuner_v4.h).
struct TunerV4 {
  const char* name;
  int (*init)(std::size_t ranks, std::size_t nodes,
              void (*log)(int, unsigned long, const char*, int, const char*, ...), void** context);
  int (*get_coll_info)(void* context, int collective, std::size_t bytes, int pipelined_ops,
                       float** costs, int algorithms, int protocols, int registered, int* channels);
  int (*destroy)(void* context);
};

struct Meeting {  // shared by a communicator's processes; zero at first
  std::atomic<int> arrived;
  std::atomic<std::uint64_t> tickets;
};

struct Fault {
  std::string kind;
  int rank = -1, at = 0;
};

Fault fault() {
  const char* text = std::getenv("FAKE_NCCL");
  char kind[16] = "";
  Fault fault;
  if (text != nullptr && std::sscanf(text, "%15[a-z]:%d:%d", kind, &fault.rank, &fault.at) >= 2) {
    fault.kind = kind;
  }
  return fault;
}

void log(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level > 2) return;  // warnings alone
  va_list arguments;
  va_start(arguments, format);
  std::fputs("fake NCCL: ", stderr);
  std::vfprintf(stderr, format, arguments);
  std::fputc('\n', stderr);
  va_end(arguments);
}

}  // namespace

struct ncclComm {
  int rank = 0, ranks = 0;
  Meeting* meeting = nullptr;
  std::uint64_t meetings = 0;
  int collectives = 0;
  std::atomic<bool> aborted{false};
  std::atomic<int> error{ncclSuccess};
  int unsettled = 0;  // so often it will be said that the last call is not done
  void* library = nullptr;
  const TunerV4* tuner = nullptr;
  void* context = nullptr;
};

namespace {

// What a call on a communicator returns that has done its work.
ncclResult_t done(ncclComm& comm) {
  const char* blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking == nullptr || std::strcmp(blocking, "0") != 0) return ncclSuccess;
  comm.unsettled = 3;
  return ncclInProgress;
}

// Until all ranks have come so often; false when this one gave up.
bool meet(ncclComm& comm) {
  const std::uint64_t all = ++comm.meetings * static_cast<std::uint64_t>(comm.ranks);
  comm.meeting->tickets.fetch_add(1);
  while (comm.meeting->tickets.load() < all) {
    if (comm.aborted) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

// By its model ring/simple is always the fastest; in truth tree/ll is where messages are small.
std::chrono::microseconds duration(ncclComm& comm, int collective, std::size_t bytes) {
  using std::chrono::microseconds;
  if (collective < 0 || comm.tuner == nullptr) return microseconds(300);
  float costs[kAlgorithms][kProtocols];
  for (auto& row : costs) {
    for (float& cost : row) cost = -1;
  }
  costs[kRing][kSimple] = 10;
  costs[kRing][kLl] = 20;
  costs[kTree][kLl] = 30;
  int channels = 0;
  comm.tuner->get_coll_info(comm.context, collective, bytes, 1, reinterpret_cast<float**>(costs),
                            kAlgorithms, kProtocols, 0, &channels);
  int algorithm = -1, protocol = -1;
  float best = std::numeric_limits<float>::max();
  for (int a = 0; a < kAlgorithms; ++a) {
    for (int p = 0; p < kProtocols; ++p) {
      if (costs[a][p] < 0 || costs[a][p] >= best) continue;
      best = costs[a][p];
      algorithm = a;
      protocol = p;
    }
  }
  if (algorithm == kTree) return microseconds(bytes < 4096 ? 300 : 4800);
  return microseconds(protocol == kLl ? 2400 : 1200);
}

ncclResult_t enqueue(ncclComm* comm, int collective, std::size_t bytes, void* stream) {
  if (comm->unsettled > 0) return ncclInvalidArgument;
  const Fault wrong = fault();
  if (wrong.rank == comm->rank && wrong.at == ++comm->collectives) {
    if (wrong.kind == "die") ::raise(SIGKILL);
    if (wrong.kind == "fail") return ncclSystemError;
  }
  const auto takes = duration(*comm, collective, bytes);
  static_cast<FakeStream*>(stream)->push([comm, takes] {
    if (!meet(*comm)) return;
    std::this_thread::sleep_for(takes);
  });
  return done(*comm);
}

Meeting* find_meeting(const char* name) {
  const int fd = ::open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, sizeof(Meeting)) != 0) return nullptr;
  void* const at = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return at == MAP_FAILED ? nullptr : static_cast<Meeting*>(at);
}

void load_tuner(ncclComm& comm) {
  const char* plugin = std::getenv("NCCL_TUNER_PLUGIN");
  if (plugin == nullptr) return;
  comm.library = ::dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (comm.library == nullptr) return;
  comm.tuner = static_cast<const TunerV4*>(::dlsym(comm.library, "ncclTunerPlugin_v4"));
  if (comm.tuner == nullptr) return;
  comm.tuner->init(static_cast<std::size_t>(comm.ranks), 1, log, &comm.context);
}

ncclResult_t end(ncclComm* comm) {
  if (comm->tuner != nullptr) comm->tuner->destroy(comm->context);
  if (comm->library != nullptr) ::dlclose(comm->library);
  return ncclSuccess;  // what a stream may still look at stays
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "a fake error";
}
const char* ncclGetLastError(ncclComm_t) { return "the cable is unplugged"; }
ncclResult_t ncclGetVersion(int* version) {
  *version = 22803;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  std::memset(id, 0, sizeof *id);
  const char* directory = std::getenv("FAKE_NCCL_DIR");
  std::snprintf(id->internal, sizeof id->internal, "%s/nccl-%d-%d",
                directory == nullptr ? "/tmp" : directory, ::getpid(), ++count);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  const Fault wrong = fault();
  if (wrong.rank == rank && wrong.kind == "refuse") return ncclSystemError;
  while (wrong.rank == rank && wrong.kind == "hang") std::this_thread::sleep_for(kPoll * 1000);
  auto* const comm = new ncclComm;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->meeting = find_meeting(id.internal);
  if (comm->meeting == nullptr) return ncclSystemError;
  comm->meeting->arrived.fetch_add(1);
  while (comm->meeting->arrived.load() < ranks) std::this_thread::sleep_for(kPoll);
  if (rank == 0) ::unlink(id.internal);
  load_tuner(*comm);
  *out = comm;
  return done(*comm);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->unsettled > 0 ? ncclInProgress : static_cast<ncclResult_t>(comm->error.load());
  if (comm->unsettled > 0) --comm->unsettled;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm->unsettled > 0 ? ncclInvalidArgument : done(*comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return comm->unsettled > 0 ? ncclInvalidArgument : end(comm);
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return end(comm);
}
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }
ncclResult_t ncclSend(const void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclRecv(void*, std::size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void*, void*, std::size_t count, ncclDataType_t, int,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, 0, 2 * count, stream);
}
ncclResult_t ncclReduce(const void*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t, int,
                        ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, 1, 2 * count, stream);
}
ncclResult_t ncclAllGather(const void*, void*, std::size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return enqueue(comm, 2, 2 * count * static_cast<std::size_t>(comm->ranks), stream);
}
ncclResult_t ncclReduceScatter(const void*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, 3, 2 * count * static_cast<std::size_t>(comm->ranks), stream);
}
ncclResult_t ncclAllReduce(const void*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue(comm, 4, 2 * count, stream);
}
}
#pragma GCC visibility pop
