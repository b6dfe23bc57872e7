// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Attach : public ClientTest {};

std::vector<std::int64_t> dims(const std::int64_t* values, std::uint32_t count) {
  return {values, values + count};
}

TEST_F(Attach, TellsWhatIsServed) {
  serve();
  const AttachmentPtr attachment = attach();
  preload_info info{};
  info.struct_size = sizeof(info);
  ASSERT_EQ(preload_get_info(attachment.get(), &info), PRELOAD_OK);
  EXPECT_STREQ(info.device, "host:0");
  EXPECT_STREQ(info.slot, "");
  EXPECT_STREQ(info.role, "target");
  EXPECT_EQ(info.key, std::string(64, 'a'));
  EXPECT_STREQ(info.metadata_json, R"({"model":"fixture"})");
  EXPECT_EQ(info.bytes, 4U << 20);
  EXPECT_EQ(info.slab_count, 2U);
  EXPECT_EQ(info.tensor_count, 6U + 22U);
  EXPECT_EQ(info.memory, PRELOAD_MEMORY_HOST);
  EXPECT_EQ(info.cuda_device, -1);
}

TEST_F(Attach, GivesEveryTensorItsBytes) {
  serve();
  const AttachmentPtr attachment = attach();
  const preload_tensor w = tensor(attachment, "w");
  EXPECT_STREQ(w.name, "w");
  EXPECT_STREQ(w.dtype, "BF16");
  EXPECT_THAT(dims(w.shape, w.ndim), ElementsAre(3, 5));
  EXPECT_THAT(dims(w.strides, w.ndim), ElementsAre(5, 1));
  EXPECT_EQ(text(w), bytes_of_w());
  EXPECT_EQ(w.is_buffer, 0);
  EXPECT_EQ(w.is_private, 0);
  EXPECT_EQ(w.alias_of, -1);
}

TEST_F(Attach, KeepsScalarsAndTensorsWithoutElements) {
  serve();
  const AttachmentPtr attachment = attach();
  const preload_tensor scalar = tensor(attachment, "scalar");
  EXPECT_EQ(scalar.ndim, 0U);
  float value = 0;
  ASSERT_EQ(scalar.bytes, sizeof(value));
  std::memcpy(&value, scalar.data, sizeof(value));
  EXPECT_EQ(value, 3.5F);
  const preload_tensor empty = tensor(attachment, "empty");
  EXPECT_THAT(dims(empty.shape, empty.ndim), ElementsAre(0, 4));
  EXPECT_EQ(empty.bytes, 0U);
  EXPECT_STREQ(empty.hash, "00000000000000000000000000000000");
}

TEST_F(Attach, GivesAliasesTheirTargetsPlace) {
  serve();
  const AttachmentPtr attachment = attach();
  const preload_tensor w = tensor(attachment, "w");
  const preload_tensor tied = tensor(attachment, "tied");
  EXPECT_EQ(tied.data, w.data);
  EXPECT_EQ(tied.alias_of, 0);
  EXPECT_STREQ(tied.name, "tied");
}

TEST_F(Attach, KeepsStrides) {
  serve();
  const AttachmentPtr attachment = attach();
  const preload_tensor strided = tensor(attachment, "strided");
  EXPECT_THAT(dims(strided.strides, strided.ndim), ElementsAre(1, 4));
  const auto* values = static_cast<const float*>(strided.data);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(values[i * strided.strides[0] + j * strided.strides[1]],
                static_cast<float>(10 * i + j));
    }
  }
}

TEST_F(Attach, ListsAllTensorsInOneCall) {
  serve();
  const AttachmentPtr attachment = attach();
  std::vector<preload_tensor> all(28);
  all[0].struct_size = sizeof(preload_tensor);
  ASSERT_EQ(preload_get_tensors(attachment.get(), all.data(), all.size()), PRELOAD_OK);
  EXPECT_STREQ(all[0].name, "w");
  EXPECT_STREQ(all[1].name, "tied");
  EXPECT_STREQ(all.back().name, "dtype.F6_E3M2");
  EXPECT_EQ(preload_get_tensors(attachment.get(), all.data(), 29), PRELOAD_E_USAGE);
}

TEST_F(Attach, NamesTheTensorThatIsNotThere) {
  serve();
  const AttachmentPtr attachment = attach();
  std::uint64_t index = 0;
  EXPECT_EQ(preload_find_tensor(attachment.get(), "model.norm.bias", &index), PRELOAD_E_NOT_FOUND);
  EXPECT_THAT(preload_last_error(), HasSubstr("model.norm.bias"));
}

TEST_F(Attach, CopiesPrivateTensorsForEachClient) {
  serve();
  const AttachmentPtr one = attach();
  const AttachmentPtr other = attach();
  const preload_tensor mine = tensor(one, "scale");
  EXPECT_EQ(mine.is_private, 1);
  EXPECT_EQ(mine.is_buffer, 1);
  EXPECT_EQ(text(mine), bytes_of<float>({1, 2}));
  const float changed = 42;
  std::memcpy(mine.data, &changed, sizeof(changed));
  EXPECT_EQ(text(mine), bytes_of<float>({42, 2}));
  EXPECT_EQ(text(tensor(other, "scale")), bytes_of<float>({1, 2}));
  EXPECT_EQ(text(tensor(attach(), "scale")), bytes_of<float>({1, 2}));
}

TEST_F(Attach, ShowsBothValuesOfAMismatch) {
  serve();
  preload_attach_options wanted = options();
  wanted.expect_json = R"({"fields": {"tp_size": 4, "dtype": "BF16"}})";
  EXPECT_EQ(refusal(wanted), PRELOAD_E_MISMATCH);
  EXPECT_THAT(preload_last_error(), HasSubstr("tp_size"));
  EXPECT_THAT(preload_last_error(), HasSubstr("2"));
  EXPECT_THAT(preload_last_error(), HasSubstr("4"));
  EXPECT_STREQ(preload_last_error_fields(), R"({"tp_size":{"expected":"4","served":"2"}})");
}

TEST_F(Attach, AcceptsWhatIsExpected) {
  serve();
  preload_attach_options wanted = options();
  const std::string expect = R"({"key": ")" + FixtureShard::key() + R"("})";
  wanted.expect_json = expect.c_str();
  EXPECT_NE(attach(wanted), nullptr);
}

TEST_F(Attach, RefusesAnExpectationThatCannotBeChecked) {
  serve();
  preload_attach_options wanted = options();
  wanted.expect_json = R"({"kye": "00"})";
  EXPECT_EQ(refusal(wanted), PRELOAD_E_USAGE);
  EXPECT_THAT(preload_last_error(), HasSubstr("kye"));
}

TEST_F(Attach, SaysWhenTheWeightsWereReleased) {
  serve();
  server_->release();
  EXPECT_EQ(refusal(options()), PRELOAD_E_RELEASED);
}

TEST_F(Attach, ReadsNoMoreOfAStructThanTheCallerHas) {
  serve();
  const AttachmentPtr attachment = attach();
  preload_info info{};
  std::memset(&info, 0x5A, sizeof(info));
  info.struct_size = offsetof(preload_info, slot);
  ASSERT_EQ(preload_get_info(attachment.get(), &info), PRELOAD_OK);
  EXPECT_STREQ(info.device, "host:0");
  EXPECT_EQ(info.global_rank, 0x5A5A5A5A);
  preload_attach_options before_devices = options();
  before_devices.device = "host:9";  // beyond what struct_size admits
  before_devices.struct_size = offsetof(preload_attach_options, device);
  EXPECT_NE(attach(before_devices), nullptr);
  info.struct_size = 0;
  EXPECT_EQ(preload_get_info(attachment.get(), &info), PRELOAD_E_USAGE);
}

TEST_F(Attach, RefusesNullsWithAText) {
  EXPECT_EQ(preload_attach(nullptr, nullptr), PRELOAD_E_USAGE);
  preload_slab slab{};
  slab.struct_size = sizeof(slab);
  EXPECT_EQ(preload_get_slab(nullptr, 0, &slab), PRELOAD_E_USAGE);
  EXPECT_THAT(preload_last_error(), HasSubstr("NULL"));
  preload_detach(nullptr);
}

}  // namespace
}  // namespace preload::test
