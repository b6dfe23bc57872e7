// SPDX-License-Identifier: Apache-2.0
// Put before a program with LD_PRELOAD, this stands between it and its reads of some files: it
// counts what they return and makes them go wrong as the environment says. tests/e2e/read_faults.py
// sets the variables and reads the counters.
//
//   PRELOAD_TEST_FAULT_FILES    reads of paths that contain this are meant; no others are touched
//   PRELOAD_TEST_FAULT_COUNTS   directory of the counters, one file a process, named by its id
//   PRELOAD_TEST_FAULT_RANK     only this rank of the launcher's has faults; all are counted
//   PRELOAD_TEST_FAULT_SHORT    1: a read returns from one byte to what it would
//   PRELOAD_TEST_FAULT_EINTR    N: every Nth read fails with EINTR
//   PRELOAD_TEST_FAULT_EINVAL   N: direct reads that end past offset N fail with EINVAL
//   PRELOAD_TEST_FAULT_EIO      N: the byte at offset N cannot be read
//   PRELOAD_TEST_FAULT_DELAY_MS       N: every read takes so much longer
//   PRELOAD_TEST_FAULT_DELAY_ONCE_MS  N: the first read past offset 0 takes so much longer
//   PRELOAD_TEST_FAULT_SLOWDOWN N: every read takes N times its time, or that of 64 MiB/s if longer
//   PRELOAD_TEST_FAULT_TRUNCATE N: the file on the disk is cut to N bytes before a read ends past
//   it PRELOAD_TEST_FAULT_TRUNCATE_LOOK  K: or after the Kth fstat of such a file, for mapped
//   files,
//                                     whose reads are nobody's to intercept
//
// Requests that must not block (RWF_NOWAIT) ask what is cached: they are passed on and counted
// apart. System calls are made directly, so that neither order nor kind of other preloaded
// libraries matters.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>

namespace {

// As tests/e2e/read_faults.py reads them: a file is an array of these, 64 bits each.
enum Counter : std::size_t {
  kBytes,  // returned, all reads together
  kReads,
  kDirectReads,  // of those, through a descriptor opened with O_DIRECT
  kProbedBytes,
  kRank,  // one more than the launcher's rank; 0 without a launcher
  kShort,
  kEintr,
  kEinval,
  kEio,
  kDelays,
  kTruncations,
  kCounters
};

using Number = std::optional<std::uint64_t>;

const char* text_of(const char* name) { return std::getenv(name); }

Number number_of(const char* name) {
  const char* text = text_of(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

Number launcher_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const Number rank = number_of(name)) return rank;
  }
  return std::nullopt;
}

// A file that is mapped survives however the process ends.
std::atomic<std::uint64_t>* map_counters(const char* directory) {
  static std::array<std::atomic<std::uint64_t>, kCounters> nowhere;
  if (directory == nullptr) return nowhere.data();
  std::array<char, PATH_MAX> path;
  std::snprintf(path.data(), path.size(), "%s/%ld", directory, syscall(SYS_getpid));
  const int fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, path.data(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  constexpr std::size_t kFileBytes = sizeof nowhere;
  void* address = MAP_FAILED;
  if (fd >= 0 && syscall(SYS_ftruncate, fd, kFileBytes) == 0) {
    address = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (fd >= 0) syscall(SYS_close, fd);
  if (address != MAP_FAILED) return static_cast<std::atomic<std::uint64_t>*>(address);
  std::fprintf(stderr, "read_faults: cannot map %s: %s\n", path.data(), std::strerror(errno));
  std::abort();
}

class Faults {
 public:
  static Faults& get() {
    static Faults faults;
    return faults;
  }

  // The path of `fd` where faults are meant for it, else empty.
  std::string_view path_of(int fd, std::array<char, PATH_MAX>& buffer) const {
    if (files_ == nullptr || fd < 0) return {};
    const int before = errno;
    std::array<char, 64> link;
    std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
    const long length =
        syscall(SYS_readlinkat, AT_FDCWD, link.data(), buffer.data(), buffer.size() - 1);
    errno = before;
    if (length <= 0) return {};
    buffer[static_cast<std::size_t>(length)] = '\0';
    const std::string_view path(buffer.data(), static_cast<std::size_t>(length));
    return path.find(files_) == std::string_view::npos ? std::string_view() : path;
  }

  void count(Counter counter, std::uint64_t by = 1) { counters_[counter].fetch_add(by); }

  // Asks the kernel through `ask(bytes)` for at most `bytes` at `offset`.
  template <class Ask>
  ssize_t read(int fd, std::string_view path, std::uint64_t offset, std::size_t bytes, Ask ask) {
    const bool direct = (syscall(SYS_fcntl, fd, F_GETFL) & O_DIRECT) != 0;
    count(kReads);
    if (direct) count(kDirectReads);
    if (!here_) return counted(ask(bytes));
    const std::uint64_t end = offset + bytes;
    if (eintr_ && turn_.fetch_add(1) % *eintr_ == *eintr_ - 1) return refuse(kEintr, EINTR);
    if (direct && einval_ && end > *einval_) return refuse(kEinval, EINVAL);
    if (eio_ && offset <= *eio_ && *eio_ < end) {
      // As the kernel does: what lies before the bad sector is given first.
      if (direct || offset == *eio_) return refuse(kEio, EIO);
      bytes = *eio_ - offset;
    }
    if (truncate_ && !truncate_look_ && end > *truncate_) cut(path);
    // A direct read has to ask for whole blocks; a sequential one must not move further than it
    // says.
    if (short_ && !direct && bytes > 1) bytes = shorter(bytes);
    const std::uint64_t started = now_ns();
    ssize_t got = ask(bytes);
    delay(offset, now_ns() - started, got);
    if (short_ && direct && got > 1) {
      got = static_cast<ssize_t>(shorter(static_cast<std::uint64_t>(got)));
    }
    return counted(got);
  }

  void looked_at(std::string_view path) {
    if (here_ && truncate_ && truncate_look_ && looks_.fetch_add(1) + 1 == *truncate_look_) {
      cut(path);
    }
  }

 private:
  Faults() : counters_(map_counters(text_of("PRELOAD_TEST_FAULT_COUNTS"))) {
    const Number rank = launcher_rank();
    const Number only = number_of("PRELOAD_TEST_FAULT_RANK");
    if (rank) counters_[kRank] = *rank + 1;
    here_ = !only || only == rank;
  }

  ssize_t counted(ssize_t got) {
    if (got > 0) count(kBytes, static_cast<std::uint64_t>(got));
    return got;
  }

  ssize_t refuse(Counter counter, int error) {
    count(counter);
    errno = error;
    return -1;
  }

  void cut(std::string_view path) {
    const int before = errno;
    struct stat status {};
    if (syscall(SYS_newfstatat, AT_FDCWD, path.data(), &status, 0) == 0 &&
        static_cast<std::uint64_t>(status.st_size) > *truncate_ &&
        syscall(SYS_truncate, path.data(), *truncate_) == 0) {
      count(kTruncations);
    }
    errno = before;
  }

  void delay(std::uint64_t offset, std::uint64_t took_ns, ssize_t got) {
    std::uint64_t ns = delay_ms_.value_or(0) * 1'000'000;
    if (delay_once_ms_ && offset > 0 && !delayed_.exchange(true)) {
      ns += *delay_once_ms_ * 1'000'000;
    }
    if (slowdown_ && *slowdown_ > 1 && got > 0) {
      const std::uint64_t least_ns = static_cast<std::uint64_t>(got) * 1'000'000'000 >> 26;
      ns += (*slowdown_ - 1) * std::max(took_ns, least_ns);
    }
    if (ns == 0) return;
    count(kDelays);
    const int before = errno;
    timespec left{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &left, &left) != 0 && errno == EINTR) {
    }
    errno = before;
  }

  static std::uint64_t now_ns() {
    timespec now{};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
  }

  std::uint64_t shorter(std::uint64_t bytes) {
    count(kShort);
    return 1 + random() % bytes;
  }

  // splitmix64 of the read's number: the same lengths in every run, whichever thread gets them.
  std::uint64_t random() {
    std::uint64_t x = (turn_.fetch_add(1) + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

  std::atomic<std::uint64_t>* counters_;
  bool here_ = true;
  const char* files_ = text_of("PRELOAD_TEST_FAULT_FILES");
  bool short_ = number_of("PRELOAD_TEST_FAULT_SHORT").value_or(0) != 0;
  Number eintr_ = number_of("PRELOAD_TEST_FAULT_EINTR");
  Number einval_ = number_of("PRELOAD_TEST_FAULT_EINVAL");
  Number eio_ = number_of("PRELOAD_TEST_FAULT_EIO");
  Number delay_ms_ = number_of("PRELOAD_TEST_FAULT_DELAY_MS");
  Number delay_once_ms_ = number_of("PRELOAD_TEST_FAULT_DELAY_ONCE_MS");
  Number slowdown_ = number_of("PRELOAD_TEST_FAULT_SLOWDOWN");
  Number truncate_ = number_of("PRELOAD_TEST_FAULT_TRUNCATE");
  Number truncate_look_ = number_of("PRELOAD_TEST_FAULT_TRUNCATE_LOOK");
  std::atomic<std::uint64_t> turn_{0};
  std::atomic<std::uint64_t> looks_{0};
  std::atomic<bool> delayed_{false};
};

std::size_t total(const iovec* parts, int count) {
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

ssize_t read_at(int fd, void* out, std::size_t bytes, off_t offset) {
  const auto ask = [&](std::size_t allowed) {
    return static_cast<ssize_t>(syscall(SYS_pread64, fd, out, allowed, offset));
  };
  std::array<char, PATH_MAX> buffer;
  const std::string_view path = Faults::get().path_of(fd, buffer);
  if (path.empty()) return ask(bytes);
  return Faults::get().read(fd, path, static_cast<std::uint64_t>(offset), bytes, ask);
}

ssize_t read_vector_at(int fd, const iovec* parts, int count, off_t offset, int flags) {
  const auto ask = [&](const iovec* from, int pieces) {
    return static_cast<ssize_t>(syscall(SYS_preadv2, fd, from, pieces, offset, 0L, flags));
  };
  std::array<char, PATH_MAX> buffer;
  const std::string_view path = Faults::get().path_of(fd, buffer);
  if (path.empty()) return ask(parts, count);
  if ((flags & RWF_NOWAIT) != 0) {
    const ssize_t got = ask(parts, count);
    if (got > 0) Faults::get().count(kProbedBytes, static_cast<std::uint64_t>(got));
    return got;
  }
  const std::size_t bytes = total(parts, count);
  return Faults::get().read(fd, path, static_cast<std::uint64_t>(offset), bytes,
                            [&](std::size_t allowed) {
                              if (allowed == bytes || count == 0) return ask(parts, count);
                              const iovec first{parts->iov_base, std::min(allowed, parts->iov_len)};
                              return ask(&first, 1);
                            });
}

int look_at(int fd, struct stat* status) {
  const int result = static_cast<int>(syscall(SYS_fstat, fd, status));
  std::array<char, PATH_MAX> buffer;
  const std::string_view path = Faults::get().path_of(fd, buffer);
  if (!path.empty()) Faults::get().looked_at(path);
  return result;
}

}  // namespace

extern "C" {

#define PRELOAD_EXPORT __attribute__((visibility("default")))

PRELOAD_EXPORT ssize_t pread(int fd, void* out, std::size_t bytes, off_t offset) {
  return read_at(fd, out, bytes, offset);
}

PRELOAD_EXPORT ssize_t pread64(int fd, void* out, std::size_t bytes, off64_t offset) {
  return read_at(fd, out, bytes, offset);
}

PRELOAD_EXPORT ssize_t preadv(int fd, const iovec* parts, int count, off_t offset) {
  return read_vector_at(fd, parts, count, offset, 0);
}

PRELOAD_EXPORT ssize_t preadv64(int fd, const iovec* parts, int count, off64_t offset) {
  return read_vector_at(fd, parts, count, offset, 0);
}

PRELOAD_EXPORT ssize_t preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  return read_vector_at(fd, parts, count, offset, flags);
}

PRELOAD_EXPORT ssize_t preadv64v2(int fd, const iovec* parts, int count, off64_t offset,
                                  int flags) {
  return read_vector_at(fd, parts, count, offset, flags);
}

PRELOAD_EXPORT ssize_t read(int fd, void* out, std::size_t bytes) {
  const auto ask = [&](std::size_t allowed) {
    return static_cast<ssize_t>(syscall(SYS_read, fd, out, allowed));
  };
  std::array<char, PATH_MAX> buffer;
  const std::string_view path = Faults::get().path_of(fd, buffer);
  if (path.empty()) return ask(bytes);
  const long offset = syscall(SYS_lseek, fd, 0, SEEK_CUR);
  return Faults::get().read(fd, path, offset < 0 ? 0 : static_cast<std::uint64_t>(offset), bytes,
                            ask);
}

PRELOAD_EXPORT int fstat(int fd, struct stat* status) { return look_at(fd, status); }

PRELOAD_EXPORT int fstat64(int fd, struct stat64* status) {
  static_assert(sizeof(struct stat) == sizeof(struct stat64));
  return look_at(fd, reinterpret_cast<struct stat*>(status));
}

}  // extern "C"
