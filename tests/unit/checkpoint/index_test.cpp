// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <string>
#include <vector>

#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"
#include "unit/checkpoint/refusal.hpp"

namespace preload {
namespace {

using test::refusal;
using test::stored;
using test::TempDir;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

std::vector<std::vector<test::StoredTensor>> two_shards() {
  return {{stored("a", "BF16", {4, 4}), stored("b", "F32", {3})}, {stored("c", "BF16", {8})}};
}

OpenOptions rebuilding(bool rebuild) {
  OpenOptions options;
  options.rebuild_index = rebuild;
  return options;
}

std::vector<std::string> file_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const SourceFile& file : checkpoint.files) names.push_back(file.name);
  return names;
}

std::vector<std::string> tensor_names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const SourceTensor& tensor : checkpoint.tensors) names.push_back(tensor.name);
  return names;
}

TEST(Index, NamesTheShardsThatAreRead) {
  const TempDir dir;
  write_checkpoint(dir, two_shards());
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  EXPECT_THAT(file_names(checkpoint), ElementsAre(kFirst, kSecond));
  EXPECT_THAT(tensor_names(checkpoint), ElementsAre("a", "b", "c"));
  EXPECT_EQ(checkpoint.tensors[2].file, 1U);
  EXPECT_THAT(checkpoint.warnings, IsEmpty());
}

TEST(Index, FilesThatItDoesNotNameAreNotRead) {
  const TempDir dir;
  write_checkpoint(dir, two_shards());
  // Whatever is in them: broken ones prove that nobody looked.
  dir.write("consolidated.safetensors", "not a safetensors file");
  dir.write("original/model-00001-of-00001.safetensors", "neither");
  dir.write("pytorch_model.bin", "pickle");
  EXPECT_THAT(file_names(open_checkpoint(dir.path(), {})), ElementsAre(kFirst, kSecond));
}

// The index places all tensors of the second shard in the first, and so names the second nowhere.
TEST(Index, IsStaleWhereItForgetsAShardThatLiesBesideTheOthers) {
  const TempDir dir;
  write_checkpoint(dir, two_shards());
  std::string index = dir.read(kIndex);
  for (std::size_t at; (at = index.find(kSecond)) != std::string::npos;) {
    index.replace(at, std::string_view(kSecond).size(), kFirst);
  }
  dir.write(kIndex, index);
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("stale"), HasSubstr("--rebuild-index")));
  OpenOptions rebuild;
  rebuild.rebuild_index = true;
  EXPECT_THAT(file_names(open_checkpoint(dir.path(), rebuild)), ElementsAre(kFirst, kSecond));
}

TEST(Index, MayNameFilesInSubdirectories) {
  const TempDir dir;
  dir.write("config.json", "{}");
  dir.write("weights/one.safetensors", test::safetensors_file({stored("a", "U8", {3})}));
  dir.write(kIndex, R"({"weight_map": {"a": "weights/one.safetensors"}})");
  EXPECT_THAT(file_names(open_checkpoint(dir.path(), {})), ElementsAre("weights/one.safetensors"));
}

TEST(Index, EveryMissingShardIsNamedAtOnceAndFast) {
  const TempDir dir;
  std::vector<std::vector<test::StoredTensor>> shards;
  for (int i = 0; i < 40; ++i) shards.push_back({stored("t" + std::to_string(i), "U8", {64})});
  write_checkpoint(dir, shards);
  for (const std::size_t gone : {3, 17, 39}) dir.remove(test::shard_name(gone, 40));
  const auto start = std::chrono::steady_clock::now();
  const std::string text = refusal(dir.path());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  EXPECT_THAT(text, AllOf(HasSubstr("3 problems"),
                          HasSubstr("model-00004-of-00040.safetensors: is not there; download"),
                          HasSubstr("model-00018-of-00040.safetensors: is not there; download"),
                          HasSubstr("model-00040-of-00040.safetensors: is not there; download")));
}

TEST(Index, ProblemsOfDifferentKindsAndFilesAreInOneMessage) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("a", "U8", {64})},
                         {stored("b", "U8", {64})},
                         {stored("c", "U8", {64})},
                         {stored("d", "U8", {64})}});
  dir.remove(test::shard_name(0, 4));
  dir.truncate(test::shard_name(1, 4), dir.size(test::shard_name(1, 4)) - 5);
  dir.write(test::shard_name(2, 4), "version https://git-lfs.github.com/spec/v1\nsize 9\n");
  dir.write("config.json", "{\"architectures\": ");
  const std::string text = refusal(dir.path());
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("4 problems"), HasSubstr("00001-of-00004.safetensors: is not there"),
            HasSubstr("00002-of-00004.safetensors: is truncated"), HasSubstr("5 bytes are missing"),
            HasSubstr("00003-of-00004.safetensors: is a git-lfs pointer"),
            HasSubstr("config.json: is no valid JSON (parse error at line 1")));
}

struct BadIndex {
  const char* name;
  const char* text;
  std::vector<const char*> says;
};
class BadIndexes : public testing::TestWithParam<BadIndex> {};

TEST_P(BadIndexes, AreRefusedNamingWhatIsWrongAndTheRemedy) {
  const TempDir dir;
  write_checkpoint(dir, two_shards());
  dir.write(kIndex, GetParam().text);
  const std::string text = refusal(dir.path());
  EXPECT_THAT(text, HasSubstr("model.safetensors.index.json: "));
  for (const char* part : GetParam().says) EXPECT_THAT(text, HasSubstr(part));
}

const BadIndex kBadIndexes[] = {
    {"Malformed",
     "{\n \"weight_map\": {\n  \"a\": \"x.safetensors\",,\n }}",
     {"no valid JSON", "line 3, column 24", "--rebuild-index"}},
    {"CutOff", "{\"weight_map\": {\"a\": \"mod", {"no valid JSON", "line 1", "--rebuild-index"}},
    {"Empty", "", {"no valid JSON", "--rebuild-index"}},
    {"WithoutAMap", R"({"metadata": {"total_size": 5}})", {"weight_map", "--rebuild-index"}},
    {"WithAListAsMap", R"({"weight_map": ["a"]})", {"weight_map", "--rebuild-index"}},
    {"AList", "[]", {"weight_map", "--rebuild-index"}},
    {"WithAnEmptyMap", R"({"weight_map": {}})", {"names no tensor", "--rebuild-index"}},
    {"WithNumbers", R"({"weight_map": {"a": 5}})", {"\"a\"", "no file name", "--rebuild-index"}},
    {"WithLists",
     R"({"weight_map": {"a": ["x.safetensors"]}})",
     {"\"a\"", "no file name", "--rebuild-index"}},
    {"NamingATensorTwice",
     R"({"weight_map": {"a": "model-00001-of-00002.safetensors",)"
     R"( "a": "model-00002-of-00002.safetensors"}})",
     {"\"a\"", "named twice", "--rebuild-index"}},
    {"LeavingTheDirectory",
     R"({"weight_map": {"a": "../other/model.safetensors"}})",
     {"../other/model.safetensors", "leaves the checkpoint's directory"}},
    {"LeavingTheDirectoryFromWithin",
     R"({"weight_map": {"a": "sub/../../model.safetensors"}})",
     {"sub/../../model.safetensors", "leaves the checkpoint's directory"}},
    {"WithAbsolutePaths",
     R"({"weight_map": {"a": "/etc/model.safetensors"}})",
     {"/etc/model.safetensors", "absolute path"}},
    {"NamingPickles",
     R"({"weight_map": {"a": "pytorch_model.bin"}})",
     {"pytorch_model.bin", "no safetensors file"}},
    {"GitLfsPointer",
     "version https://git-lfs.github.com/spec/v1\nsize 9\n",
     {"git-lfs pointer", "git lfs pull"}},
};
INSTANTIATE_TEST_SUITE_P(Table, BadIndexes, testing::ValuesIn(kBadIndexes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Index, ThatIsStaleIsRefusedWithTheDiagnosisAndTheFlag) {
  const TempDir dir;
  auto shards = two_shards();
  write_checkpoint(dir, shards);
  std::swap(shards[0][1], shards[1][0]);  // b and c change places, the index stays
  for (std::size_t i = 0; i < 2; ++i) {
    dir.write(test::shard_name(i, 2), test::safetensors_file(shards[i]));
  }
  EXPECT_THAT(refusal(dir.path()),
              AllOf(HasSubstr("model.safetensors.index.json: is stale"),
                    HasSubstr("the headers hold every tensor"),
                    HasSubstr("\"b\" is in model-00002-of-00002.safetensors, not in "
                              "model-00001-of-00002.safetensors"),
                    HasSubstr("--rebuild-index")));

  const Checkpoint checkpoint = open_checkpoint(dir.path(), rebuilding(true));
  EXPECT_THAT(tensor_names(checkpoint), ElementsAre("a", "c", "b"));
  EXPECT_THAT(checkpoint.warnings,
              ElementsAre(AllOf(HasSubstr("stale"), HasSubstr("taken from the headers"))));
}

TEST(Index, ThatOmitsATensorOfItsShardsIsStale) {
  const TempDir dir;
  write_checkpoint(dir, two_shards());
  dir.write(kIndex, R"({"weight_map": {"a": "model-00001-of-00002.safetensors",)"
                    R"( "c": "model-00002-of-00002.safetensors"}})");
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("\"b\" in model-00001-of-00002.safetensors is "
                                                   "not in the index"),
                                         HasSubstr("--rebuild-index")));
  EXPECT_EQ(open_checkpoint(dir.path(), rebuilding(true)).tensors.size(), 3U);
}

TEST(Index, ThatNamesOtherFilesThanAreThereIsStaleWhenTheirHeadersHoldEverything) {
  const TempDir dir;
  write_checkpoint(dir,
                   {{stored("a", "U8", {4})}, {stored("b", "U8", {4})}, {stored("c", "U8", {4})}});
  for (std::size_t i = 0; i < 3; ++i) dir.remove(test::shard_name(i, 3));
  dir.write(kFirst, test::safetensors_file({stored("a", "U8", {4}), stored("b", "U8", {4})}));
  dir.write(kSecond, test::safetensors_file({stored("c", "U8", {4})}));
  EXPECT_THAT(
      refusal(dir.path()),
      AllOf(HasSubstr("model-00003-of-00003.safetensors: is not there"),
            HasSubstr("model.safetensors.index.json: is stale"), HasSubstr("--rebuild-index")));
  const Checkpoint checkpoint = open_checkpoint(dir.path(), rebuilding(true));
  EXPECT_THAT(file_names(checkpoint), ElementsAre(kFirst, kSecond));
  EXPECT_THAT(checkpoint.warnings, testing::Contains(HasSubstr("stale")));
}

TEST(Index, ThatCannotBeReadCanBeRebuilt) {
  const TempDir dir;
  write_checkpoint(dir, two_shards());
  dir.write(kIndex, "{\"weight_map\"");
  const Checkpoint checkpoint = open_checkpoint(dir.path(), rebuilding(true));
  EXPECT_EQ(checkpoint.tensors.size(), 3U);
  EXPECT_THAT(checkpoint.warnings, testing::Contains(HasSubstr("cannot be used")));
}

TEST(Index, PromisingATensorThatNoFileHoldsIsRefusedEvenWhenRebuilding) {
  const TempDir dir;
  auto shards = two_shards();
  write_checkpoint(dir, shards);
  shards[0].pop_back();
  dir.write(kFirst, test::safetensors_file(shards[0]));
  for (const bool rebuild : {false, true}) {
    EXPECT_THAT(refusal(dir.path(), rebuilding(rebuild)),
                AllOf(HasSubstr("model-00001-of-00002.safetensors: lacks 1 tensor"),
                      HasSubstr("\"b\""), HasSubstr("download the file again")));
  }
}

TEST(Index, TakesAnEmptyShard) {
  const TempDir dir;
  write_checkpoint(dir, two_shards());
  dir.write("empty.safetensors", test::raw_safetensors("{}", ""));
  const std::string index = dir.read(kIndex);
  EXPECT_EQ(open_checkpoint(dir.path(), {}).files.size(), 2U);
  dir.remove(kIndex);
  dir.write("model-00001-of-00001.safetensors", "");
  dir.remove("model-00001-of-00001.safetensors");
  dir.write(test::shard_name(0, 3), test::safetensors_file(two_shards()[0]));
  dir.write(test::shard_name(1, 3),
            test::raw_safetensors(R"({"__metadata__":{"format":"pt"}})", ""));
  dir.write(test::shard_name(2, 3), test::safetensors_file(two_shards()[1]));
  dir.remove(kFirst);
  dir.remove(kSecond);
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  EXPECT_EQ(checkpoint.files.size(), 3U);
  EXPECT_EQ(checkpoint.tensors.size(), 3U);
  EXPECT_EQ(checkpoint.tensors.back().file, 2U);
}

}  // namespace
}  // namespace preload
