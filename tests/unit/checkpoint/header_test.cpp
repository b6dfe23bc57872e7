// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "checkpoint/safetensors_header.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"
#include "unit/checkpoint/refusal.hpp"

namespace preload {
namespace {

using test::raw_safetensors;
using test::refusal;
using test::stored;
using test::TempDir;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kConfig = R"({"architectures": ["TestModel"]})";

// One file around a header and as many data bytes, which must be refused with every given text.
struct CorruptHeader {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  std::vector<const char*> says;
};

class CorruptHeaders : public testing::TestWithParam<CorruptHeader> {};

TEST_P(CorruptHeaders, AreRefusedNamingFileTensorAndRemedy) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("model.safetensors",
            raw_safetensors(GetParam().header, std::string(GetParam().data_bytes, 'x')));
  const std::string text = refusal(dir.path());
  EXPECT_THAT(text, HasSubstr("model.safetensors: "));
  for (const char* part : GetParam().says) EXPECT_THAT(text, HasSubstr(part));
}

constexpr const char* kAgain = "again";  // every remedy for damage is to get the file anew

const CorruptHeader kCorrupt[] = {
    {"OffsetsBeyondTheFile",
     R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})",
     8,
     {"truncated", "8 bytes are missing", "\"a\"", kAgain}},
    {"OffsetsThatContradictTheShape",
     R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}})",
     8,
     {"\"a\"", "8 bytes", "F32 [4] takes 16 bytes", kAgain}},
    {"OffsetsThatRunBackwards",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[8,4]}})",
     8,
     {"\"a\"", "[8, 4]", "backwards", kAgain}},
    {"ShapesWhoseProductOverflows",
     R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
     0,
     {"\"a\"", "[4294967296, 4294967296]", "no number of bytes", kAgain}},
    {"ShapesThatOverflowBesideAZero",
     R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})",
     0,
     {"\"a\"", "no number of bytes", kAgain}},
    {"ShapesWhoseBytesOverflow",
     R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})",
     0,
     {"\"a\"", "no number of bytes", kAgain}},
    {"ExtentsBeyond63Bits",
     R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,9223372036854775808]}})",
     0,
     {"\"a\"", "extent of 9223372036854775808", kAgain}},
    {"OffsetsBeyond64Bits",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}})",
     1,
     {"\"a\"", "data_offsets", kAgain}},
    {"OffsetsAtTheEndOf64Bits",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})",
     1,
     {"\"a\"", "truncated", kAgain}},
    {"NegativeExtents",
     R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
     1,
     {"\"a\"", "shape", kAgain}},
    {"FractionalExtents",
     R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
     1,
     {"\"a\"", "shape", kAgain}},
    {"OverlappingTensors",
     R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
     R"("b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
     12,
     {"\"b\"", "inside of tensor \"a\"", kAgain}},
    {"TensorsInsideOfAnother",
     R"({"a":{"dtype":"U8","shape":[12],"data_offsets":[0,12]},)"
     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
     12,
     {"\"b\"", "inside of tensor \"a\"", kAgain}},
    {"GapsBetweenTensors",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}})",
     12,
     {"\"b\"", "nothing owns the 4 bytes before it", kAgain}},
    {"BytesAfterTheLastTensor",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
     9,
     {"5 bytes after its last tensor", kAgain}},
    {"DuplicateNames",
     R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
     R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
     8,
     {"\"a\"", "named twice", kAgain}},
    {"DuplicateFields",
     R"({"a":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}})",
     4,
     {"\"a\"", "\"dtype\" twice", kAgain}},
    {"NineDimensions",
     R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
     1,
     {"\"a\"", "more than 8 dimensions"}},
    {"UnknownTypes",
     R"({"a":{"dtype":"F7_E9","shape":[4],"data_offsets":[0,4]}})",
     4,
     {"\"a\"", "unknown dtype \"F7_E9\"", "convert"}},
    {"HalvesOfBytes",
     R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})",
     1,
     {"\"a\"", "F4", "[3]"}},
    {"MissingFields",
     R"({"a":{"dtype":"U8","data_offsets":[0,1]}})",
     1,
     {"\"a\"", "lacks its dtype, shape or data_offsets"}},
    {"ThreeOffsets",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})",
     1,
     {"\"a\"", "not two numbers"}},
    {"TypesThatAreNoText",
     R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})",
     1,
     {"\"a\"", "dtype that is no string"}},
    {"ShapesThatAreText",
     R"({"a":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})",
     1,
     {"\"a\"", "shape"}},
    {"NestedShapes",
     R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
     1,
     {"\"a\"", "shape"}},
    {"TensorsThatAreNoObjects", R"({"a":[1,2]})", 0, {"\"a\"", "not described by a JSON object"}},
    {"TensorsThatAreNumbers", R"({"a":7})", 0, {"\"a\"", "not described by a JSON object"}},
    {"MetadataThatIsNoText",
     R"({"__metadata__":{"format":{"x":1}}})",
     0,
     {"__metadata__ is no object of strings"}},
    {"MetadataThatIsAList", R"({"__metadata__":[]})", 0, {"__metadata__ is no object of strings"}},
    {"BrokenJson",
     R"({"a":{"dtype":"U8",, "shape":[1]}})",
     0,
     {"no valid JSON", "line 1, column 20", kAgain}},
    {"TextAfterTheJson", R"({} x)", 0, {"no valid JSON", "column 4"}},
    {"InvalidUtf8", "{\"\xff\xfe\":1}", 0, {"no valid JSON"}},
    {"HeadersThatAreLists", R"([1, 2])", 0, {"does not start with '{'"}},
    {"NamesWithANul",
     "{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1,
     {"NUL", "\"a\\x00b\""}},
};

INSTANTIATE_TEST_SUITE_P(Table, CorruptHeaders, testing::ValuesIn(kCorrupt),
                         [](const auto& info) { return std::string(info.param.name); });

// Whole files whose first bytes cannot be a header's length.
struct CorruptStart {
  const char* name;
  std::string bytes;
  std::vector<const char*> says;
};
class CorruptStarts : public testing::TestWithParam<CorruptStart> {};

TEST_P(CorruptStarts, AreRefusedWithoutAllocatingFromThem) {
  const TempDir dir;
  dir.write("config.json", kConfig);
  dir.write("model.safetensors", GetParam().bytes);
  const std::string text = refusal(dir.path());
  EXPECT_THAT(text, HasSubstr("model.safetensors: "));
  for (const char* part : GetParam().says) EXPECT_THAT(text, HasSubstr(part));
}

const CorruptStart kStarts[] = {
    {"EmptyFile", "", {"0 bytes, too few", kAgain}},
    {"SevenBytes", "1234567", {"7 bytes, too few", kAgain}},
    {"LengthBeyondTheFile", raw_safetensors(4096, "{}", ""), {"4096", "4094 bytes are missing"}},
    {"LengthBeyondTheFormat",
     raw_safetensors(100'000'001, "{}", ""),
     {"100000001", "more than the 100000000", kAgain}},
    {"LengthOfAllOnes", raw_safetensors(~0ULL, "{}", ""), {"18446744073709551615", kAgain}},
    {"LengthOfZero", raw_safetensors(0, "", ""), {"header of 0 bytes", kAgain}},
    {"RandomBytes", test::pattern_bytes("random", 5000), {"claims a header of", kAgain}},
    {"RandomBytesAsHeader",
     raw_safetensors(test::pattern_bytes("x", 200), ""),
     {"does not start with '{'", kAgain}},
    {"GitLfsPointer",
     "version https://git-lfs.github.com/spec/v1\n"
     "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n",
     {"git-lfs pointer", "git lfs pull"}},
    {"PickleUnderAnotherName", "PK\x03\x04" + std::string(60, '\x08'), {"pickled", "save_file"}},
    {"HtmlErrorPage", "<!DOCTYPE html><html><body>404 not found</body></html>", {kAgain}},
};
INSTANTIATE_TEST_SUITE_P(Table, CorruptStarts, testing::ValuesIn(kStarts),
                         [](const auto& info) { return std::string(info.param.name); });

class Truncated : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Truncated, FilesAreRefusedWithTheirMissingBytes) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("first", "BF16", {512, 8}), stored("last", "F32", {1024})}});
  const std::uint64_t missing = GetParam();
  dir.truncate("model.safetensors", dir.size("model.safetensors") - missing);
  EXPECT_THAT(refusal(dir.path()),
              AllOf(HasSubstr("model.safetensors: is truncated"),
                    HasSubstr(missing == 1 ? "1 byte is missing"
                                           : fmt::format("{} bytes are missing", missing)),
                    HasSubstr(kAgain),
                    HasSubstr(missing > 4096 ? "from tensor \"first\"" : "from tensor \"last\"")));
}
INSTANTIATE_TEST_SUITE_P(Bytes, Truncated, testing::Values(1, 4096, 6144, 12288));

TEST(Header, TruncatedInsideTheHeaderIsRefused) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("a", "BF16", {512, 8})}});
  dir.truncate("model.safetensors", 40);
  EXPECT_THAT(refusal(dir.path()), AllOf(HasSubstr("model.safetensors"), HasSubstr("missing")));
}

TEST(Header, OneMissingTensorHidesNoOtherProblem) {
  const TempDir dir;
  dir.write("model.safetensors",
            raw_safetensors(R"({"a":{"dtype":"NO","shape":[4],"data_offsets":[0,4]},)"
                            R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,5]},)"
                            R"("c":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}})",
                            std::string(12, 'x')));
  const std::string text = refusal(dir.path());
  EXPECT_THAT(text, AllOf(HasSubstr("2 problems"), HasSubstr("\"a\""), HasSubstr("\"b\"")));
  EXPECT_THAT(text, testing::Not(HasSubstr("\"c\"")));  // the hole before it is no news
}

TEST(Header, ReadsEveryTypeWithItsSize) {
  const TempDir dir;
  std::vector<test::StoredTensor> tensors;
  const char* names[] = {"BOOL",        "U8",          "I8",      "F8_E5M2", "F8_E4M3", "F8_E8M0",
                         "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16",     "F16",     "BF16",
                         "I32",         "U32",         "F32",     "F64",     "I64",     "U64",
                         "C64",         "F4",          "F6_E2M3", "F6_E3M2"};
  for (const char* name : names) tensors.push_back(stored(name, name, {3, 8}));
  write_checkpoint(dir, {tensors});
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  ASSERT_EQ(checkpoint.tensors.size(), std::size(names));
  const std::string file = dir.read("model.safetensors");
  for (std::size_t i = 0; i < std::size(names); ++i) {
    const SourceTensor& tensor = checkpoint.tensors[i];
    EXPECT_EQ(tensor.name, names[i]);
    EXPECT_EQ(dtype_name(tensor.dtype), names[i]);
    EXPECT_EQ(tensor.shape, (Dims{3, 8}));
    EXPECT_EQ(tensor.bytes, tensors[i].bytes.size());
    EXPECT_EQ(file.substr(tensor.offset, tensor.bytes), tensors[i].bytes) << names[i];
  }
}

TEST(Header, KeepsScalarsAndTensorsWithoutElements) {
  const TempDir dir;
  write_checkpoint(dir, {{stored("scalar", "F32", {}), stored("empty", "BF16", {0, 128}),
                          stored("plain", "U8", {5}), stored("hollow", "I64", {7, 0, 3})}});
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  const TensorNames names(checkpoint);
  const auto find = [&](const char* name) {
    return checkpoint.tensors.at(names.find(name).value());
  };
  EXPECT_EQ(find("scalar").bytes, 4U);
  EXPECT_TRUE(find("scalar").shape.empty());
  EXPECT_EQ(find("empty").bytes, 0U);
  EXPECT_EQ(find("empty").shape, (Dims{0, 128}));
  EXPECT_EQ(find("plain").bytes, 5U);
  EXPECT_EQ(find("hollow").shape, (Dims{7, 0, 3}));
  EXPECT_EQ(names.find("absent"), std::nullopt);
}

TEST(Header, TensorsComeInTheOrderOfTheirBytesWhateverTheHeadersOrder) {
  const TempDir dir;
  dir.write("model.safetensors",
            raw_safetensors(R"({"late":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},)"
                            R"("early":{"shape":[2],"data_offsets":[0,2],"dtype":"U8"}})",
                            "xxyyyy"));
  const Checkpoint checkpoint = open_checkpoint(dir.path(), {});
  ASSERT_EQ(checkpoint.tensors.size(), 2U);
  EXPECT_EQ(checkpoint.tensors[0].name, "early");
  EXPECT_EQ(checkpoint.tensors[1].name, "late");
}

TEST(Header, IgnoresFieldsThatTheFormatDoesNotKnow) {
  const TempDir dir;
  dir.write("model.safetensors",
            raw_safetensors(R"({"a":{"dtype":"U8","x":{"y":[1,{"z":null}]},"shape":[2],)"
                            R"("data_offsets":[0,2],"w":-1.5}})",
                            "xx"));
  EXPECT_EQ(open_checkpoint(dir.path(), {}).tensors.at(0).bytes, 2U);
}

TEST(Header, DeepNestingNeitherCrashesNorPasses) {
  const TempDir dir;
  dir.write("model.safetensors", raw_safetensors("{\"a\":" + std::string(1'000'000, '['), ""));
  EXPECT_THAT(refusal(dir.path()), HasSubstr("model.safetensors"));
}

TEST(Header, WithRandomDamageIsRefusedOrStillTilesItsFile) {
  // What a damaged header is accepted as, under another name or type, must lie within the file and
  // own each of its bytes once.
  const std::string good =
      test::safetensors_file({stored("a.weight", "BF16", {16, 4}), stored("b.weight", "F32", {8}),
                              stored("c", "U8", {3})});
  const std::uint64_t start = test::data_start(good);
  std::mt19937_64 random(11);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string json = good.substr(8, start - 8);
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      json[random() % json.size()] = static_cast<char>(random());
    }
    Problems problems;
    const auto tensors = read_safetensors_header("file", json, good.size(), problems);
    if (!problems.empty()) continue;
    ++accepted;
    std::uint64_t at = start;
    for (const SourceTensor& tensor : tensors) {
      ASSERT_EQ(tensor.offset, at) << "round " << round;
      at += tensor.bytes;
    }
    ASSERT_EQ(at, good.size()) << "round " << round;
  }
  EXPECT_GT(accepted, 0);      // names may change
  EXPECT_LT(accepted, 10000);  // most damage shows
}

TEST(Header, ThousandsOfProblemsMakeAMessageThatCanBeRead) {
  std::string header = "{";
  for (int i = 0; i < 5000; ++i) {
    header += fmt::format(R"({}"t{}":{{"dtype":"NO","shape":[],"data_offsets":[0,1]}})",
                          i == 0 ? "" : ",", i);
  }
  const TempDir dir;
  dir.write("model.safetensors", raw_safetensors(header + "}", ""));
  const std::string text = refusal(dir.path());
  EXPECT_THAT(text, AllOf(HasSubstr("\"t0\""), HasSubstr("4950 more problems")));
  EXPECT_LT(text.size(), 10'000U);
}

}  // namespace
}  // namespace preload
