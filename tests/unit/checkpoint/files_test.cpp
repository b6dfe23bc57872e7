// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/cpu_time.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"
#include "unit/checkpoint/refusal.hpp"

namespace preload {
namespace {

using test::refusal;
using test::safetensors_file;
using test::shard_name;
using test::stored;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> file_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const SourceFile& file : checkpoint.files) names.push_back(file.name);
  return names;
}

TEST(Files, SingleModelFileIsReadWithItsReceiptAndConfig) {
  const TempDir dir;
  const std::string config = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8})";
  write_checkpoint(dir, {{stored("a", "BF16", {4, 4})}}, config);
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  EXPECT_EQ(checkpoint.directory, dir.path());
  EXPECT_EQ(checkpoint.config_json, config);
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
  struct stat status {};
  ASSERT_EQ(::stat((dir / "model.safetensors").c_str(), &status), 0);
  ASSERT_EQ(checkpoint.files.size(), 1U);
  EXPECT_EQ(checkpoint.files[0].name, "model.safetensors");
  EXPECT_EQ(checkpoint.files[0].bytes, static_cast<std::uint64_t>(status.st_size));
  EXPECT_EQ(checkpoint.files[0].inode, status.st_ino);
  EXPECT_EQ(checkpoint.files[0].mtime_ns,
            std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec);
  EXPECT_EQ(checkpoint.files[0].ctime_ns,
            std::int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec);
}

TEST(Files, TheOnlySafetensorsFileIsTheModelWhateverItsName) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("weights_fp16.safetensors", safetensors_file({stored("a", "F16", {4})}));
  EXPECT_THAT(file_names(open_checkpoint(dir.path(), {})), ElementsAre("weights_fp16.safetensors"));
}

TEST(Files, ModelSafetensorsWinsOverOthersWithoutAnIndex) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("a", "F16", {4})}});
  dir.write("consolidated.safetensors", "never read");
  EXPECT_THAT(file_names(open_checkpoint(dir.path(), {})), ElementsAre("model.safetensors"));
}

TEST(Files, CompleteNumberedShardsNeedNoIndexAndSaySo) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("a", "F16", {4})}, {stored("b", "F16", {4})}});
  dir.remove("model.safetensors.index.json");
  dir.write("consolidated.safetensors", "never read");
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  EXPECT_THAT(file_names(checkpoint), ElementsAre(shard_name(0, 2), shard_name(1, 2)));
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("2 numbered shards")));
}

TEST(Files, IncompleteNumberedShardsAreRefusedNamingTheMissing) {
  const TempDir dir;
  write_checkpoint(
      dir, {{stored("a", "F16", {4})}, {stored("b", "F16", {4})}, {stored("c", "F16", {4})}});
  dir.remove("model.safetensors.index.json");
  dir.remove(shard_name(1, 3));
  EXPECT_THAT(refusal(dir.path()),
              AllOf(HasSubstr("1 of 3 numbered shards are missing"),
                    HasSubstr("\"model-00002-of-00003.safetensors\""), HasSubstr("download")));
}

TEST(Files, NumberedShardsOfTwoModelsAreNotMixed) {
  const TempDir dir;
  for (const char* name :
       {"model-00001-of-00002", "model-00002-of-00002", "model-00001-of-00001"}) {
    dir.write(std::string(name) + ".safetensors", safetensors_file({stored(name, "U8", {4})}));
  }
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("several safetensors files"),
                                         HasSubstr("model-00001-of-00001.safetensors"),
                                         HasSubstr("download the index")));
}

TEST(Files, SeveralUnnumberedFilesAreRefusedNamingThem) {
  const TempDir dir;
  dir.write("one.safetensors", safetensors_file({stored("a", "U8", {4})}));
  dir.write("two.safetensors", safetensors_file({stored("b", "U8", {4})}));
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("\"one.safetensors\", \"two.safetensors\""),
                                         HasSubstr("download the index")));
}

TEST(Files, PickledWeightsAreRefusedWithTheWayOut) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("pytorch_model-00001-of-00002.bin", "x");
  dir.write("pytorch_model-00002-of-00002.bin", "x");
  dir.write("consolidated.00.pth", "x");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("pickled weights only"),
                                         HasSubstr("pytorch_model-00001-of-00002.bin"),
                                         HasSubstr("consolidated.00.pth"), HasSubstr("save_file")));
}

TEST(Files, DirectoriesWithoutWeightsSayWhatIsThere) {
  const TempDir dir;
  dir.write("README.md", "x");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr(dir.path()), HasSubstr("no .safetensors file"),
                                         HasSubstr("\"README.md\"")));
  dir.remove("README.md");
  EXPECT_THAT(refusal(dir.path()), HasSubstr("no files"));
  dir.write("model.gguf", "x");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("GGUF"), HasSubstr(".safetensors")));
}

TEST(Files, MissingConfigIsAWarning) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("a", "F16", {4})}});
  dir.remove("config.json");
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  EXPECT_EQ(checkpoint.config_json, "{}");
  EXPECT_THAT(checkpoint.warnings, ElementsAre(HasSubstr("no config.json")));
}

TEST(Files, ModelOptsOwnFileStandsInForAMissingQuantizationConfig) {
  const TempDir dir;
  const std::string format =
      R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"FP8"}})";
  write_checkpoint(dir, {{stored("a", "F16", {4})}}, R"({"hidden_size": 8})");
  dir.write("hf_quant_config.json", format);
  EXPECT_EQ(open_checkpoint(dir.path(), {}).config_json,
            R"({"hidden_size":8,"quantization_config":)" + format + "}");
  const std::string stated = R"({"quantization_config": {"quant_method": "fp8"}})";
  dir.write("config.json", stated);
  EXPECT_EQ(open_checkpoint(dir.path(), {}).config_json, stated) << "what config.json says counts";
  dir.write("config.json", "{}");
  dir.write("hf_quant_config.json", "{");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("hf_quant_config.json"), HasSubstr("JSON")));
}

TEST(Files, MalformedConfigIsRefusedWithItsPosition) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("a", "F16", {4})}}, "{\n  \"hidden_size\": ,\n}");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("config.json: "), HasSubstr("line 2, column 18"),
                                         HasSubstr("download it again")));
}

TEST(Files, ThatAreNoFilesAreRefusedWithoutWaiting) {
  const TempDir dir;
  dir.write("config.json", "{}");
  ASSERT_EQ(::mkfifo((dir / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(refusal(dir.path()), HasSubstr("model.safetensors: is no regular file"));
  dir.remove("model.safetensors");
  dir.make_directory("model.safetensors");
  EXPECT_THAT(refusal(dir.path()), HasSubstr("model.safetensors: is a directory"));
}

TEST(Files, LinksThatLeadNowhereNameTheirTarget) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.link("model.safetensors", "../../blobs/0123abcd");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("model.safetensors: is a link to"),
                                         HasSubstr("../../blobs/0123abcd"), HasSubstr("download")));
}

// Two shards that both hold `copies`, each beside a tensor of its own that keeps it in the index.
void write_with_duplicates(const TempDir& dir, std::vector<test::StoredTensor> first,
                           std::vector<test::StoredTensor> second) {
  first.push_back(stored("only_first", "F16", {4}));
  second.push_back(stored("only_second", "F16", {4}));
  write_checkpoint(dir, {first, second});
}

TEST(Duplicates, WithEqualBytesAreOneWarningAndOneTensorWhereTheIndexSays) {
  const TempDir dir;
  const auto tied = stored("tied", "F16", {64});
  const auto scale = stored("scale", "F32", {});
  write_with_duplicates(dir, {tied, scale}, {scale, tied});
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  ASSERT_EQ(checkpoint.tensors.size(), 4U);
  EXPECT_THAT(checkpoint.warnings, ElementsAre(AllOf(HasSubstr("2 tensors are in several files"),
                                                     HasSubstr("\"scale\", \"tied\""))));
  const TensorNames names(checkpoint);
  EXPECT_EQ(checkpoint.tensors[names.find("tied").value()].file, 1U);  // named last in the index
}

TEST(Duplicates, WithDifferentBytesAreRefusedNamingBothFiles) {
  const TempDir dir;
  auto other = stored("tied", "F16", {1 << 20});
  const auto tied = other;
  other.bytes.back() = static_cast<char>(other.bytes.back() ^ 1);
  write_with_duplicates(dir, {tied}, {other});
  EXPECT_THAT(refusal(dir.path()),
              AllOf(HasSubstr("tensor \"tied\" is also in"), HasSubstr(shard_name(0, 2)),
                    HasSubstr(shard_name(1, 2)), HasSubstr("different bytes"),
                    HasSubstr("download both files again")));
}

TEST(Duplicates, WithDifferentShapesAreRefusedShowingBoth) {
  const TempDir dir;
  write_with_duplicates(dir, {stored("tied", "F16", {8, 2})}, {stored("tied", "F16", {2, 8})});
  EXPECT_THAT(refusal(dir.path()),
              AllOf(HasSubstr("\"tied\""), HasSubstr("F16 [2, 8]"), HasSubstr("F16 [8, 2]")));
}

TEST(Encoding, OfACheckpointComesBackEqual) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("a", "BF16", {4, 4}), stored("s", "F32", {})},
                         {stored("z", "F8_E4M3", {0, 9}), stored("ü", "I64", {1, 2, 3})}});
  Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  checkpoint.warnings.push_back("something");
  EXPECT_EQ(decode_checkpoint(encode(checkpoint)), checkpoint);
}

TEST(Encoding, RefusesBytesThatItDidNotWrite) {
  Checkpoint checkpoint;
  checkpoint.files.push_back({.name = "f"});
  checkpoint.tensors.push_back({.name = "t", .dtype = DType::kU8, .shape = {3}, .bytes = 3});
  const std::string good = encode(checkpoint);
  std::vector<std::string> bad{"", "x", "{}", good + "x"};
  for (std::size_t cut = 0; cut < good.size(); ++cut) bad.push_back(good.substr(0, cut));
  for (const std::string& bytes : bad) {
    try {
      (void)decode_checkpoint(bytes);
      ADD_FAILURE() << "accepted " << bytes.size() << " bytes";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kInternal);
    }
  }
}

// CPU time to encode and decode a checkpoint of `tensors` tensors.
double coding_seconds(std::uint64_t tensors) {
  Checkpoint checkpoint;
  checkpoint.files.push_back({.name = "model.safetensors", .bytes = 1ULL << 40});
  for (std::uint64_t i = 0; i < tensors; ++i) {
    checkpoint.tensors.push_back({.name = "model.layers.0.mlp.experts." + std::to_string(i) + ".w",
                                  .dtype = DType::kBF16,
                                  .shape = {2048, 7168},
                                  .offset = i << 25,
                                  .bytes = 1ULL << 25});
  }
  double least = 1e9;
  for (int turn = 0; turn < 3; ++turn) {
    const double start = test::cpu_seconds();
    EXPECT_EQ(decode_checkpoint(encode(checkpoint)), checkpoint);
    least = std::min(least, test::cpu_seconds() - start);
  }
  return least;
}

TEST(Encoding, TakesTimeInProportionToTheTensors) {
  const double few = coding_seconds(10'000);
  const double many = coding_seconds(100'000);
  EXPECT_LT(many / few, 40) << "ten times the tensors took " << many << " s against " << few
                            << " s";
}

}  // namespace
}  // namespace preload
