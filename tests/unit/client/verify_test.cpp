// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/dump.hpp"
#include "cli/verify_hashes.hpp"
#include "cli/verify_source.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"
#include "unit/client/live_server.hpp"

namespace preload::cli {
namespace {

using test::bytes_of;
using test::FixtureShard;
using test::LiveServer;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A checkpoint of three tensors and what a daemon holds of it in `hf` layout.
class Verify : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<test::StoredTensor> tensors{
        {"norm", "F32", {3}, bytes_of<float>({1, -2, 0.5F})},
        test::stored("weight", "BF16", {8, 6}),
        test::stored("steps", "I64", {2})};
    test::write_checkpoint(directory_, "model/", {tensors}, R"({"architectures": ["TestModel"]})");
    checkpoint_ = open_checkpoint(directory_ / "model", {});
    description_.request.layout = "hf";
    shard_.add("norm", DType::kF32, {3}, bytes_of<float>({1, -2, 0.5F}));
    shard_.add("weight", DType::kBF16, {8, 6}, test::pattern_bytes("weight", 96));
    shard_.add("steps", DType::kI64, {2}, test::pattern_bytes("steps", 16));
  }
  client::Attachment attach(const FixtureShard& shard) {
    server_.emplace(directory_ / "run", shard);
    client::AttachOptions options;
    options.connect.wanted.socket_dir = directory_ / "run";
    return client::Attachment(options);
  }

  void flip(std::uint64_t offset) {
    directory_.flip_byte("model/model.safetensors", offset);
    checkpoint_ = open_checkpoint(directory_ / "model", {});
  }

  TempDir directory_;
  Checkpoint checkpoint_;
  ShardDescription description_;
  FixtureShard shard_;
  std::optional<LiveServer> server_;
};

TEST_F(Verify, AgreesWithWhatWasLoaded) {
  const client::Attachment attachment = attach(shard_);
  EXPECT_THAT(verify_hashes(attachment, 2), IsEmpty());
  EXPECT_THAT(verify_source(attachment, description_, checkpoint_, 2), IsEmpty());
}

TEST_F(Verify, HashesAliasesStridesScalarsAndPrivateTensors) {
  const client::Attachment attachment = attach(test::one_of_everything());
  EXPECT_THAT(verify_hashes(attachment, 2), IsEmpty());
}

TEST_F(Verify, NamesATensorWhoseBytesChanged) {
  const client::Attachment attachment = attach(test::one_of_everything());
  // Private tensors are this process's own and can be damaged here.
  const auto index = attachment.manifest().find("scale");
  attachment.slab_data(1)[attachment.manifest()[*index].offset] ^= std::byte{1};
  EXPECT_THAT(verify_hashes(attachment, 2), ElementsAre(TensorMismatch{"scale", std::nullopt}));
}

TEST_F(Verify, NamesTensorAndSourceOfAFlippedByteInTheFile) {
  const client::Attachment attachment = attach(shard_);
  ASSERT_EQ(checkpoint_.tensors[1].name, "weight");
  flip(checkpoint_.tensors[1].offset + 95);
  EXPECT_THAT(verify_source(attachment, description_, checkpoint_, 2),
              ElementsAre(TensorMismatch{"weight", "weight"}));
}

TEST_F(Verify, CastsAsTheLoaderDoes) {
  description_.request.dtype = DType::kBF16;
  FixtureShard cast;
  cast.add("norm", DType::kBF16, {3}, bytes_of<std::uint16_t>({0x3f80, 0xc000, 0x3f00}));
  cast.add("weight", DType::kBF16, {8, 6}, test::pattern_bytes("weight", 96));
  cast.add("steps", DType::kI64, {2}, test::pattern_bytes("steps", 16));
  const client::Attachment attachment = attach(cast);
  EXPECT_THAT(verify_source(attachment, description_, checkpoint_, 2), IsEmpty());
  ASSERT_EQ(checkpoint_.tensors[0].name, "norm");
  flip(checkpoint_.tensors[0].offset + 7);
  EXPECT_THAT(verify_source(attachment, description_, checkpoint_, 2),
              ElementsAre(TensorMismatch{"norm", "norm"}));
}

TEST_F(Verify, NamesWhatIsServedButNotInTheCheckpointAndTheReverse) {
  FixtureShard other;
  other.add("norm", DType::kF32, {3}, bytes_of<float>({1, -2, 0.5F}));
  other.add("weight", DType::kBF16, {6, 8}, test::pattern_bytes("weight", 96));
  other.add("steps", DType::kI64, {2}, test::pattern_bytes("steps", 16));
  other.add("extra", DType::kI64, {1}, test::pattern_bytes("extra", 8));
  const client::Attachment attachment = attach(other);
  EXPECT_THAT(
      verify_source(attachment, description_, checkpoint_, 2),
      ElementsAre(TensorMismatch{"weight", std::nullopt}, TensorMismatch{"extra", std::nullopt}));
}

TEST_F(Verify, RefusesAFileThatBecameShorter) {
  const client::Attachment attachment = attach(shard_);
  directory_.truncate("model/model.safetensors", directory_.size("model/model.safetensors") - 1);
  EXPECT_THROW(verify_source(attachment, description_, checkpoint_, 2), Error);
}

// A dump as its reader sees it: name → dtype, shape and bytes.
std::string dumped(const TempDir& directory, const std::string& name, std::string* dtype,
                   std::vector<int>* shape) {
  const std::string file = directory.read("dump/rank0.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const auto entry = nlohmann::json::parse(file.substr(8, length)).at(name);
  *dtype = entry.at("dtype");
  *shape = entry.at("shape").get<std::vector<int>>();
  const std::size_t begin = entry.at("data_offsets")[0];
  const std::size_t end = entry.at("data_offsets")[1];
  return file.substr(8 + length + begin, end - begin);
}

TEST_F(Verify, DumpsEveryNameContiguously) {
  const client::Attachment attachment = attach(test::one_of_everything());
  dump_safetensors(attachment, directory_ / "dump", "rank0.safetensors");
  std::string dtype;
  std::vector<int> shape;
  EXPECT_EQ(dumped(directory_, "w", &dtype, &shape), test::bytes_of_w());
  EXPECT_EQ(dtype, "BF16");
  EXPECT_THAT(shape, ElementsAre(3, 5));
  EXPECT_EQ(dumped(directory_, "tied", &dtype, &shape), test::bytes_of_w());
  EXPECT_EQ(dumped(directory_, "strided", &dtype, &shape),
            bytes_of<float>({0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}));
  EXPECT_THAT(shape, ElementsAre(4, 3));
  EXPECT_EQ(dumped(directory_, "scalar", &dtype, &shape), bytes_of<float>({3.5F}));
  EXPECT_THAT(shape, IsEmpty());
  EXPECT_EQ(dumped(directory_, "empty", &dtype, &shape), "");
  EXPECT_EQ(dumped(directory_, "scale", &dtype, &shape), bytes_of<float>({1, 2}));
  EXPECT_THROW(directory_.read("dump/rank0.safetensors.part"), std::exception);
}

}  // namespace
}  // namespace preload::cli
