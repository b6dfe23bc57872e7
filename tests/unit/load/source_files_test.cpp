// SPDX-License-Identifier: Apache-2.0
#include "load/source_files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "load/run_threads.hpp"
#include "load/uring.hpp"
#include "unit/load/random_load.hpp"
#include "unit/load/without_io_uring.hpp"

namespace preload {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// One file of 100,000 known bytes.
class SourceFilesTest : public testing::Test {
 protected:
  SourceFilesTest() {
    for (std::size_t i = 0; i < 100000; ++i) bytes_ += static_cast<char>(i * 2654435761U >> 13);
    directory_.write("w.safetensors", bytes_);
    checkpoint_.directory = directory_.path();
    checkpoint_.files.push_back(test::describe_file(directory_, "w.safetensors"));
  }
  SourceFiles open(std::optional<ReadMethod> method = std::nullopt,
                   ReadsInFlight in_flight = {}) const {
    return {checkpoint_, {0}, {method, in_flight}};
  }

  test::TempDir directory_;
  Checkpoint checkpoint_;
  std::string bytes_;
};

bool is_available(ReadMethod method) { return method != ReadMethod::kUring || !Uring::refusal(); }

class EveryReadMethod : public SourceFilesTest, public testing::WithParamInterface<ReadMethod> {};

TEST_P(EveryReadMethod, GivesTheFilesBytesAtAnyOffsetAndLength) {
  if (!is_available(GetParam())) GTEST_SKIP() << "no io_uring in this build or on this machine";
  SourceFiles files = open(GetParam());
  for (const std::uint64_t offset : {0, 1, 511, 4095, 4096, 50001, 99990}) {
    for (const std::uint64_t bytes : {0, 1, 10, 4097, 49999}) {
      if (offset + bytes > bytes_.size()) continue;
      SCOPED_TRACE(testing::Message() << offset << " + " << bytes);
      std::vector<std::byte> out(bytes);
      files.read(0, offset, out);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), bytes),
                bytes_.substr(offset, bytes));
    }
  }
}

TEST_P(EveryReadMethod, ReadsLargeUnalignedRangesToTheLastByte) {
  std::string large;
  for (std::size_t i = 0; i < 3'000'001; ++i) large += static_cast<char>(i * 40503U >> 7);
  directory_.write("w.safetensors", large);
  checkpoint_.files[0] = test::describe_file(directory_, "w.safetensors");
  if (!is_available(GetParam())) GTEST_SKIP() << "no io_uring in this build or on this machine";
  SourceFiles files = open(GetParam());
  for (const std::uint64_t offset : {0, 3, 4096, 999'999}) {
    std::vector<std::byte> out(large.size() - offset);
    files.read(0, offset, out);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), out.size()),
              large.substr(offset))
        << offset;
  }
}

TEST_P(EveryReadMethod, SaysWhatIsMissingWhenAFileIsTruncatedWhileItIsRead) {
  if (!is_available(GetParam())) GTEST_SKIP() << "no io_uring in this build or on this machine";
  SourceFiles files = open(GetParam());
  directory_.truncate("w.safetensors", 5000);
  std::vector<std::byte> out(2000);
  EXPECT_NO_THROW(files.read(0, 3000, out));
  try {
    files.read(0, 4000, out);
    FAIL() << "bytes that are not there were read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kCheckpoint);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("w.safetensors"), HasSubstr("offset 4000"),
                                    HasSubstr("1000 bytes short"), HasSubstr("truncated")));
  }
}

TEST_P(EveryReadMethod, SurvivesTheLossOfWholePagesThatWereMapped) {
  if (!is_available(GetParam())) GTEST_SKIP() << "no io_uring in this build or on this machine";
  SourceFiles files = open(GetParam());
  std::vector<std::byte> out(1000);
  EXPECT_NO_THROW(files.read(0, 90000, out));
  directory_.truncate("w.safetensors", 100);
  EXPECT_THROW(files.read(0, 90000, out), Error);
}

TEST_P(EveryReadMethod, HasNoMoreInFlightThanItMay) {
  if (!is_available(GetParam())) GTEST_SKIP() << "no io_uring in this build or on this machine";
  const std::string large(3 << 20, 'y');
  directory_.write("w.safetensors", large);
  checkpoint_.files[0] = test::describe_file(directory_, "w.safetensors");
  for (const int limit : {1, 3}) {
    SourceFiles files = open(GetParam(), {.local = limit, .network = limit});
    run_threads(8, [&](int index, const std::atomic<bool>&) {
      std::vector<std::byte> out(2 << 20);
      for (int turn = 0; turn < 4; ++turn) files.read(0, static_cast<unsigned>(index * 4096), out);
    });
    EXPECT_GE(files.most_in_flight(), 1);
    EXPECT_LE(files.most_in_flight(), limit);
    EXPECT_EQ(files.bytes_read(), 8ULL * 4 * (2 << 20));
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryReadMethod,
                         testing::Values(ReadMethod::kPread, ReadMethod::kMmap, ReadMethod::kDirect,
                                         ReadMethod::kUring),
                         [](const auto& method) {
                           return std::string(read_method_name(method.param));
                         });

TEST_F(SourceFilesTest, ReadsDirectlyWithOneWarningWhereTheKernelRefusesIoUring) {
  if (!Uring::is_built()) GTEST_SKIP() << "this build has no liburing";
  std::string large(1 << 20, 'x');
  large += bytes_;
  directory_.write("w.safetensors", large);
  checkpoint_.files[0] = test::describe_file(directory_, "w.safetensors");
  testing::internal::CaptureStderr();
  const bool ran = test::run_without_io_uring([&] {
    SourceFiles files = open(ReadMethod::kUring);
    std::vector<std::byte> out(large.size());
    files.read(0, 0, out);
    files.read(0, 0, out);
    EXPECT_EQ(std::memcmp(out.data(), large.data(), large.size()), 0);
    EXPECT_NE(files.main_method(), ReadMethod::kUring);
  });
  const std::string log = testing::internal::GetCapturedStderr();
  if (!ran) GTEST_SKIP() << "no seccomp filter to be had";
  const std::size_t first = log.find("the kernel refuses io_uring");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_THAT(log, AllOf(HasSubstr("EPERM"), HasSubstr("--reader direct")));
  EXPECT_EQ(log.find("the kernel refuses io_uring", first + 1), std::string::npos) << log;
}

TEST_F(SourceFilesTest, HasNoLimitOnLocalFileSystemsUnlessAsked) {
  if (file_system_kind(open_fd(AT_FDCWD, directory_.path(), O_RDONLY, 0, Errc::kInternal).get()) ==
      FileSystemKind::kNetwork) {
    GTEST_SKIP() << "temporary files are on a network here";
  }
  SourceFiles files = open(std::nullopt, {.local = 0, .network = 1});
  std::vector<std::byte> out(1000);
  files.read(0, 0, out);
  EXPECT_EQ(files.most_in_flight(), 0);
}

TEST_F(SourceFilesTest, ShowsAReadWhileItLasts) {
  ReadWatch watch;
  SourceFiles files(checkpoint_, {0}, {.watch = &watch});
  EXPECT_EQ(watch.path(0), directory_ / "w.safetensors");
  std::atomic<bool> seen{false};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  run_threads(2, [&](int index, const std::atomic<bool>&) {
    std::vector<std::byte> out(99000);
    while (!seen && std::chrono::steady_clock::now() < deadline) {
      if (index == 0) files.read(0, 1000, out);
      for (std::size_t slot = 0; index == 1 && slot < ReadWatch::kSlots; ++slot) {
        const auto read = watch.look(slot);
        if (read && read->offset == 1000 && read->bytes == 99000) seen = true;
      }
    }
  });
  EXPECT_TRUE(seen);
  for (std::size_t slot = 0; slot < ReadWatch::kSlots; ++slot) EXPECT_FALSE(watch.look(slot));
}

TEST_F(SourceFilesTest, NoticesAWriteThatKeepsTheSize) {
  const SourceFiles files = open();
  EXPECT_NO_THROW(files.check_unchanged());
  directory_.flip_byte("w.safetensors", 77);
  EXPECT_THROW(files.check_unchanged(), Error);
}

TEST_F(SourceFilesTest, GathersRowsTheSameFarApartAndClose) {
  for (const std::uint64_t stride : {7, 100, 4096, 20000, 30000}) {
    for (const std::uint64_t scratch_bytes : {0, 8, 500, 65536}) {
      SCOPED_TRACE(testing::Message() << stride << " " << scratch_bytes);
      SourceFiles files = open();
      FileRows op;
      op.file_offset = 11;
      op.file_stride = stride;
      op.rows = 3;
      op.row_bytes = 5;
      std::vector<std::byte> out(15);
      std::vector<std::byte> scratch(scratch_bytes);
      read_rows(files, op, {0, 0, 3, 0, 5}, out, scratch);
      std::string expected;
      for (std::uint64_t row = 0; row < 3; ++row) expected += bytes_.substr(11 + row * stride, 5);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(out.data()), out.size()), expected);
    }
  }
}

TEST_F(SourceFilesTest, SkipsWideGapsInsteadOfReadingThem) {
  SourceFiles files = open();
  FileRows op;
  op.file_stride = 30000;
  op.rows = 3;
  op.row_bytes = 5;
  std::vector<std::byte> out(15);
  std::vector<std::byte> scratch(65536);
  read_rows(files, op, {0, 0, 3, 0, 5}, out, scratch);
  EXPECT_EQ(files.bytes_read(), 15U);
}

}  // namespace
}  // namespace preload
