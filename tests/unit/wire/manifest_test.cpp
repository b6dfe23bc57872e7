// SPDX-License-Identifier: Apache-2.0
#include "wire/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "base/error.hpp"
#include "unit/wire/manifest_sample.hpp"

namespace preload::wire {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string encode_error(std::vector<ManifestTensor> tensors) {
  try {
    encode_manifest(sample_slabs(), tensors, "{}");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kInternal);
    return error.what();
  }
  ADD_FAILURE() << "encoded";
  return {};
}

TEST(Manifest, GivesBackEveryTensorAsItWas) {
  const std::string encoded = sample_manifest();
  const ManifestView view(bytes_of(encoded));
  const auto tensors = sample_tensors();
  ASSERT_EQ(view.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ManifestTensor got = view[i];
    const ManifestTensor& want = tensors[i];
    EXPECT_EQ(got.name, want.name);
    EXPECT_EQ(got.dtype, want.dtype);
    EXPECT_EQ(got.shape, want.shape);
    EXPECT_EQ(got.strides, want.strides);
    EXPECT_EQ(got.slab, want.slab);
    EXPECT_EQ(got.offset, want.offset);
    EXPECT_EQ(got.bytes, want.bytes);
    EXPECT_EQ(got.kind, want.kind);
    EXPECT_EQ(got.cls, want.cls);
    EXPECT_EQ(got.alias, want.alias);
    EXPECT_EQ(got.hash, want.hash);
  }
}

TEST(Manifest, GivesBackSlabsAndMetadata) {
  const std::string encoded = sample_manifest();
  const ManifestView view(bytes_of(encoded));
  ASSERT_EQ(view.slab_count(), 2U);
  EXPECT_EQ(view.slab(0).bytes, 4096U);
  EXPECT_EQ(view.slab(1).cls, TensorClass::kPrivate);
  EXPECT_EQ(view.metadata_json(), R"({"layout":"hf"})");
}

template <class T>
T at(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Offsets and values as docs/protocol.md gives them, little endian.
TEST(Manifest, LiesInMemoryAsTheProtocolSays) {
  const std::string bytes = sample_manifest();
  EXPECT_EQ(bytes.substr(0, 8), "PRLDMFST");
  EXPECT_EQ(at<std::uint32_t>(bytes, 8), 1U);
  EXPECT_EQ(at<std::uint32_t>(bytes, 12), 128U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 16), bytes.size());
  EXPECT_EQ(at<std::uint32_t>(bytes, 24), 6U);
  EXPECT_EQ(at<std::uint32_t>(bytes, 28), 2U);
  EXPECT_EQ(at<std::uint64_t>(bytes, 40), 6U * 64U);  // bytes of the records
  EXPECT_EQ(at<std::uint64_t>(bytes, 56), 2U * 16U);  // bytes of the slabs
  const auto strings = at<std::uint64_t>(bytes, 96);
  const auto record = at<std::uint64_t>(bytes, 32) + 3 * 64;  // k_scale
  EXPECT_EQ(at<std::uint64_t>(bytes, record + 16), 512U);
  EXPECT_EQ(at<std::uint64_t>(bytes, record + 24), 4U);
  EXPECT_EQ(bytes.substr(strings + at<std::uint32_t>(bytes, record + 32),
                         at<std::uint32_t>(bytes, record + 36)),
            "k_scale");
  EXPECT_EQ(at<std::uint32_t>(bytes, record + 44), 1U);           // slab
  EXPECT_EQ(at<std::uint32_t>(bytes, record + 48), 0xFFFFFFFFU);  // no alias
  EXPECT_EQ(at<std::uint8_t>(bytes, record + 56), 0U);            // a scalar
  EXPECT_EQ(at<std::uint8_t>(bytes, record + 57), 14U);           // F32
  EXPECT_EQ(at<std::uint8_t>(bytes, record + 59), 1U);            // private
  EXPECT_EQ(bytes.substr(at<std::uint64_t>(bytes, 112)), std::string(R"({"layout":"hf"})") + '\0');
}

TEST(Manifest, DtypeCodesNeverChange) {
  const std::vector<std::string_view> by_code{
      "BOOL", "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
      "I16",  "U16", "F16", "BF16",    "I32",     "U32",     "F32",         "F64",
      "I64",  "U64", "C64", "F4",      "F6_E2M3", "F6_E3M2"};
  for (std::size_t code = 0; code < by_code.size(); ++code) {
    ManifestTensor tensor;
    tensor.name = "t";
    tensor.dtype = dtype_from_name(by_code[code]).value();
    tensor.bytes = 16;
    const std::string bytes = encode_manifest({{512, TensorClass::kShared}}, {tensor}, "{}");
    EXPECT_EQ(at<std::uint8_t>(bytes, at<std::uint64_t>(bytes, 32) + 57), code) << by_code[code];
  }
}

TEST(Manifest, NamesAndMetadataAreCStrings) {
  const std::string encoded = sample_manifest();
  const ManifestView view(bytes_of(encoded));
  EXPECT_EQ(std::strlen(view[1].name.data()), view[1].name.size());
  EXPECT_EQ(std::strlen(view.metadata_json().data()), view.metadata_json().size());
}

TEST(Manifest, FindsEveryNameAndNoOther) {
  const std::string encoded = sample_manifest();
  const ManifestView view(bytes_of(encoded));
  for (std::size_t i = 0; i < view.size(); ++i) EXPECT_EQ(view.find(view[i].name), i);
  EXPECT_EQ(view.find("lm_head.weigh"), std::nullopt);
  EXPECT_EQ(view.find(""), std::nullopt);
}

TEST(Manifest, AnEmptyShardIsAManifestToo) {
  const std::string encoded = encode_manifest({}, {}, "{}");
  const ManifestView view(bytes_of(encoded));
  EXPECT_EQ(view.size(), 0U);
  EXPECT_EQ(view.find("x"), std::nullopt);
}

TEST(Manifest, AShardOfTensorsWithoutElementsNeedsNoSlab) {
  ManifestTensor tensor;
  tensor.name = "empty";
  tensor.shape = {0};
  tensor.strides = {1};
  const std::string encoded = encode_manifest({}, {tensor}, "{}");
  EXPECT_EQ(ManifestView(bytes_of(encoded)).find("empty"), 0U);
}

TEST(Manifest, WorksAtAnyAddress) {
  const std::string shifted = "x" + sample_manifest();
  const ManifestView view(bytes_of(shifted).subspan(1));
  EXPECT_EQ(view.find("packed"), 5U);
}

TEST(Manifest, RefusesToEncodeANameTwice) {
  auto tensors = sample_tensors();
  tensors[2].name = tensors[0].name;
  EXPECT_THAT(encode_error(tensors), HasSubstr("model.embed_tokens.weight"));
}

TEST(Manifest, RefusesToEncodeWhatAClientWouldRefuse) {
  auto tensors = sample_tensors();
  tensors[5].offset = 4092;  // one byte past its slab
  EXPECT_THAT(encode_error(tensors), HasSubstr("packed"));
}

TEST(Manifest, AttachesNinetyThousandTensorsWithinItsShareOfTheTarget) {
  constexpr std::size_t kCount = 90'000;
  std::vector<std::string> names(kCount);
  std::vector<ManifestTensor> tensors(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    names[i] = "model.layers." + std::to_string(i / 768) + ".mlp.experts." +
               std::to_string(i % 768 / 3) + ".w" + std::to_string(i % 3) + ".weight";
    tensors[i].name = names[i];
    tensors[i].shape = {16, 16};
    tensors[i].strides = {16, 1};
    tensors[i].offset = i * 512;
    tensors[i].bytes = 512;
  }
  const std::string encoded =
      encode_manifest({{kCount * 512, TensorClass::kShared}}, tensors, "{}");
  const auto begin = std::chrono::steady_clock::now();
  const ManifestView view(bytes_of(encoded));
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kCount; ++i) sum += view[i].bytes;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(sum, kCount * 512);
  for (std::size_t i = 0; i < kCount; i += 997) EXPECT_EQ(view.find(names[i]), i);
  RecordProperty("view_ms", std::to_string(took.count()));
  EXPECT_LT(took.count(), 2000);  // generous: sanitizers and busy machines run this too
}

}  // namespace
}  // namespace preload::wire
