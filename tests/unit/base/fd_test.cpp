// SPDX-License-Identifier: Apache-2.0
#include "base/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/temp_dir.hpp"

namespace preload {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, ClosesOnceAndMovesOwnership) {
  Fd first = make_memfd("preload-test", 0);
  const int raw = first.get();
  Fd second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that it is empty is the point
  EXPECT_TRUE(is_open(raw));
  second.reset();
  EXPECT_FALSE(is_open(raw));
}

TEST(Fd, IsNeverInherited) {
  const test::TempDir dir;
  dir.write("file", "x");
  const Fd file = open_fd(AT_FDCWD, dir / "file", O_RDONLY, 0, Errc::kCheckpoint);
  const Fd copy = duplicate(file.get());
  const Fd memory = make_memfd("preload-test", 4096);
  for (const int fd : {file.get(), copy.get(), memory.get()}) {
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(Fd, FailuresNameThePathAndTheReason) {
  const test::TempDir dir;
  try {
    open_fd(AT_FDCWD, dir / "absent", O_RDONLY, 0, Errc::kCheckpoint);
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("absent"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("ENOENT"), std::string::npos);
  }
}

TEST(Fd, PreadFullStopsAtTheEndOfTheFile) {
  const test::TempDir dir;
  dir.write("file", "0123456789");
  const Fd fd = open_fd(AT_FDCWD, dir / "file", O_RDONLY, 0, Errc::kCheckpoint);
  std::vector<std::byte> out(8);
  EXPECT_EQ(pread_full(fd.get(), out, 4, "file"), 6U);
  EXPECT_EQ(static_cast<char>(out[0]), '4');
  EXPECT_EQ(pread_full(fd.get(), out, 10, "file"), 0U);
}

TEST(Fd, ReadAllRefusesMoreThanItsLimit) {
  const test::TempDir dir;
  dir.write("file", std::string(5000, 'x'));
  const Fd fd = open_fd(AT_FDCWD, dir / "file", O_RDONLY, 0, Errc::kCheckpoint);
  EXPECT_THROW(read_all(fd.get(), "file", 4999), Error);
}

TEST(Fd, WriteFileAtReplacesTheWholeFileAndLeavesNoOther) {
  const test::TempDir dir;
  const Fd directory = open_fd(AT_FDCWD, dir.path(), O_RDONLY | O_DIRECTORY, 0, Errc::kInternal);
  write_file_at(directory.get(), "state", "a long first text");
  write_file_at(directory.get(), "state", "short");
  EXPECT_EQ(read_file_at(directory.get(), "state"), "short");
  EXPECT_EQ(read_file_at(directory.get(), "absent"), std::nullopt);
  struct stat status {};
  ASSERT_EQ(::fstatat(directory.get(), "state", &status, 0), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(Fd, WriteFileAtNamesADirectoryThatIsInItsPlace) {
  const test::TempDir dir;
  const Fd directory = open_fd(AT_FDCWD, dir.path(), O_RDONLY | O_DIRECTORY, 0, Errc::kInternal);
  ASSERT_EQ(::mkdirat(directory.get(), "state", 0700), 0);
  try {
    write_file_at(directory.get(), "state", "text");
    FAIL() << "written over a directory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_NE(std::string(error.what()).find("'" + (dir / "state") + "' is a directory"),
              std::string::npos)
        << error.what();
  }
  const auto files = std::filesystem::directory_iterator(dir.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "the directory alone";
}

TEST(Fd, WritersOfOneProcessIdDoNotMeetInAFile) {
  constexpr int kWriters = 4;
  constexpr int kWrites = 25;
  const test::TempDir dir;
  const Fd directory = open_fd(AT_FDCWD, dir.path(), O_RDONLY | O_DIRECTORY, 0, Errc::kInternal);
  std::atomic<int> failures = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      const std::string text(10000, static_cast<char>('a' + i));
      for (int k = 0; k < kWrites; ++k) {
        try {
          write_file_at(directory.get(), "state", text);
          const auto read = read_file_at(directory.get(), "state");
          if (!read || *read != std::string(10000, read->front())) ++failures;
        } catch (const Error&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
}

TEST(Fd, ReadFileAtDoesNotFollowLinks) {
  const test::TempDir dir;
  dir.write("secret", "text");
  dir.link("link", "secret");
  const Fd directory = open_fd(AT_FDCWD, dir.path(), O_RDONLY | O_DIRECTORY, 0, Errc::kInternal);
  EXPECT_THROW(read_file_at(directory.get(), "link"), Error);
}

TEST(Mapping, SharesTheBytesOfTheFile) {
  const Fd fd = make_memfd("preload-test", 8192);
  const Mapping writable = map_fd(fd.get(), 8192, true, "test memory");
  const Mapping readable = map_fd(fd.get(), 8192, false, "test memory");
  writable.data()[5000] = std::byte{42};
  EXPECT_EQ(readable.bytes()[5000], std::byte{42});
}

TEST(Memfd, SealedRefusesEveryChangeButKeepsEarlierMappings) {
  const Fd fd = make_memfd("preload-test", 8192);
  const Mapping writable = map_fd(fd.get(), 8192, true, "test memory");
  EXPECT_FALSE(is_sealed(fd.get()));
  seal_memfd(fd.get());
  EXPECT_TRUE(is_sealed(fd.get()));
  EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
  EXPECT_EQ(::ftruncate(fd.get(), 16384), -1);
  EXPECT_EQ(::write(fd.get(), "x", 1), -1);
  EXPECT_EQ(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), -1);
  writable.data()[0] = std::byte{1};
  EXPECT_EQ(map_fd(fd.get(), 8192, false, "test memory").bytes()[0], std::byte{1});
}

}  // namespace
}  // namespace preload
