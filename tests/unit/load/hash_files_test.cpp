// SPDX-License-Identifier: Apache-2.0
#include "load/hash_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "base/error.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"

namespace preload {
namespace {

using test::stored;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::uint32_t> all_sources(const Checkpoint& checkpoint) {
  std::vector<std::uint32_t> sources(checkpoint.tensors.size());
  std::iota(sources.begin(), sources.end(), 0U);
  return sources;
}

// Two shards with tensors below, at and above the size of one read.
std::vector<std::vector<test::StoredTensor>> shards() {
  return {{stored("small", "U8", {13}), stored("large", "U8", {(5 << 20) + 3})},
          {stored("empty", "F32", {0, 4}), stored("exact", "F32", {1 << 18})}};
}

TEST(HashFiles, GivesEveryTensorTheHashOfItsBytes) {
  const TempDir dir;
  write_checkpoint(dir, shards());
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  for (const int threads : {0, 1, 3}) {
    const auto hashes = hash_sources(checkpoint, all_sources(checkpoint), threads, Cancel());
    ASSERT_EQ(hashes.size(), 3U);  // a tensor without bytes has none
    for (const SourceHash& hash : hashes) {
      const std::string& name = checkpoint.tensors[hash.source].name;
      const std::string bytes = test::pattern_bytes(name, checkpoint.tensors[hash.source].bytes);
      EXPECT_EQ(hash.hash, hash_bytes(std::as_bytes(std::span(bytes)))) << name;
    }
  }
}

TEST(HashFiles, HashesOnlyWhatItIsAskedFor) {
  const TempDir dir;
  write_checkpoint(dir, shards());
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  const std::uint32_t exact = TensorNames(checkpoint).find("exact").value();
  dir.remove(checkpoint.files[0].name);  // never opened
  const auto hashes = hash_sources(checkpoint, {exact}, 2, Cancel());
  ASSERT_EQ(hashes.size(), 1U);
  EXPECT_EQ(hashes[0].source, exact);
  EXPECT_TRUE(hash_sources(checkpoint, {}, 2, Cancel()).empty());
}

TEST(HashFiles, AFileThatLostItsTailIsRefusedNamingIt) {
  const TempDir dir;
  write_checkpoint(dir, shards());
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  const std::string file = checkpoint.files[1].name;
  dir.truncate(file, dir.size(file) - 1);
  try {
    (void)hash_sources(checkpoint, all_sources(checkpoint), 2, Cancel());
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kCheckpoint);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file), HasSubstr("1 fewer")));
  }
}

TEST(HashFiles, StopsWhenCancelled) {
  const TempDir dir;
  write_checkpoint(dir, shards());
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  Cancel cancel;
  cancel.request({143, "SIGTERM"});
  EXPECT_THROW((void)hash_sources(checkpoint, all_sources(checkpoint), 2, cancel), Cancelled);
}

}  // namespace
}  // namespace preload
