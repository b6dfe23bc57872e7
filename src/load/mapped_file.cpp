// SPDX-License-Identifier: Apache-2.0
#include "load/mapped_file.hpp"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace preload {

namespace {

constexpr std::uint64_t kPageBytes = 4096;

// Set while this thread copies out of a mapping: where SIGBUS goes back to.
thread_local sigjmp_buf* volatile resume_point = nullptr;

void on_bus_error(int signal_number, siginfo_t*, void*) {
  if (resume_point != nullptr) siglongjmp(*resume_point, 1);
  // Not ours: let it end the process as it would have.
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void install_handler() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  static_cast<void>(installed);
}

// No object with a destructor lives in this frame: siglongjmp leaves it.
bool guarded_copy(void* to, const void* from, std::size_t bytes) noexcept {
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    resume_point = nullptr;
    return false;
  }
  resume_point = &here;
  std::memcpy(to, from, bytes);
  resume_point = nullptr;
  return true;
}

}  // namespace

MappedFile::MappedFile(int fd, std::uint64_t bytes)
    : fd_(fd), mapping_(map_fd(fd, bytes, false, "a checkpoint's file")) {
  install_handler();
}

bool MappedFile::copy(std::uint64_t offset, std::span<std::byte> out) const noexcept {
  std::byte* const from = mapping_.data() + offset;
  // One call instead of a fault every few pages; where the kernel lacks it, faults do.
  const std::uint64_t lead = reinterpret_cast<std::uintptr_t>(from) % kPageBytes;
  madvise(from - lead, out.size() + lead, MADV_POPULATE_READ);
  if (!guarded_copy(out.data(), from, out.size())) return false;
  // The last page of a file that was cut short reads as zeros and raises nothing.
  struct stat status {};
  return fstat(fd_, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) >= offset + out.size();
}

}  // namespace preload
