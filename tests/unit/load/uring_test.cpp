// SPDX-License-Identifier: Apache-2.0
#include "load/uring.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "base/bytes.hpp"
#include "base/fd.hpp"
#include "load/aligned_buffer.hpp"
#include "load/read_method.hpp"
#include "support/temp_dir.hpp"
#include "unit/load/without_io_uring.hpp"

namespace preload {
namespace {

using testing::HasSubstr;

// A file that ends off the grid of direct reads.
class UringTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto refusal = Uring::refusal()) GTEST_SKIP() << errno_text(*refusal);
    for (std::size_t i = 0; i < 3 * kMiB + 12345; ++i) bytes_ += static_cast<char>(i * 40503U >> 7);
    directory_.write("file", bytes_);
    fd_ = Fd(::open((directory_ / "file").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
    if (!fd_) GTEST_SKIP() << "the file system takes no direct reads";
    ring_ = Uring::open();
    ASSERT_TRUE(ring_);
  }
  DirectRead read(int fd, std::uint64_t offset, std::uint64_t bytes, int in_flight) {
    out_ = buffer_.reserve(bytes);
    std::memset(out_.data(), 0, out_.size());
    return ring_->read({fd, offset, out_, 4096}, in_flight);
  }

  test::TempDir directory_;
  std::string bytes_;
  Fd fd_;
  std::unique_ptr<Uring> ring_;
  AlignedBuffer buffer_;
  std::span<std::byte> out_;
};

TEST_F(UringTest, GivesTheFilesBytesWithAnyNumberInFlight) {
  for (const int in_flight : {1, 2, 3, Uring::kDepth, 100}) {
    for (const std::uint64_t bytes : {4 * kKiB, 256 * kKiB, 260 * kKiB, 3 * kMiB - 8 * kKiB}) {
      SCOPED_TRACE(testing::Message() << in_flight << " in flight, " << bytes << " bytes");
      const DirectRead read_now = read(fd_.get(), 8192, bytes, in_flight);
      EXPECT_EQ(read_now.error, 0);
      ASSERT_EQ(read_now.bytes, bytes);
      EXPECT_EQ(std::memcmp(out_.data(), bytes_.data() + 8192, bytes), 0);
    }
  }
}

TEST_F(UringTest, EndsWhereTheFileDoes) {
  for (const int in_flight : {1, Uring::kDepth}) {
    for (const std::uint64_t beyond : {4 * kKiB, kMiB, 5 * kMiB}) {
      const DirectRead read_now = read(fd_.get(), 0, 3 * kMiB + 12 * kKiB + beyond, in_flight);
      EXPECT_EQ(read_now.error, 0);
      ASSERT_EQ(read_now.bytes, bytes_.size());
      EXPECT_EQ(std::memcmp(out_.data(), bytes_.data(), bytes_.size()), 0);
    }
    EXPECT_EQ(read(fd_.get(), 8 * kMiB, kMiB, in_flight).bytes, 0U);
  }
}

TEST_F(UringTest, SaysWhichReadWasRefusedAndGoesOnAfterwards) {
  const Fd write_only(::open((directory_ / "file").c_str(), O_WRONLY | O_CLOEXEC));
  const DirectRead refused = read(write_only.get(), 4096, kMiB, 4);
  EXPECT_EQ(refused.error, EBADF);
  EXPECT_GE(refused.offset, 4096U);
  EXPECT_EQ(read(fd_.get(), 0, kMiB, 4).bytes, kMiB);
}

TEST(Uring, IsRefusedWhereTheKernelRefusesIt) {
  if (!Uring::is_built()) GTEST_SKIP() << "this build has no liburing";
  std::optional<int> refusal;
  if (!test::run_without_io_uring([&] { refusal = Uring::refusal(); })) {
    GTEST_SKIP() << "no seccomp filter to be had";
  }
  EXPECT_EQ(refusal, EPERM);
}

TEST(Uring, ABuildWithoutItNamesTheRemedy) {
  if (Uring::is_built()) GTEST_SKIP() << "this build has liburing";
  try {
    require_built(ReadMethod::kUring);
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("liburing-dev"));
  }
}

}  // namespace
}  // namespace preload
