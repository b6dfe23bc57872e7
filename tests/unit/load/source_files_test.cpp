// SPDX-License-Identifier: Apache-2.0
#include "load/source_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/load/random_load.hpp"

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
  SourceFiles open() const {
    CopyOp op;
    op.row_bytes = 1;
    return {checkpoint_, {op}};
  }

  test::TempDir directory_;
  Checkpoint checkpoint_;
  std::string bytes_;
};

TEST_F(SourceFilesTest, SaysWhatIsMissingWhenAFileIsTruncatedWhileItIsRead) {
  SourceFiles files = open();
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
      CopyOp op;
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
  CopyOp op;
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
