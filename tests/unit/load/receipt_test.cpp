// SPDX-License-Identifier: Apache-2.0
#include "load/receipt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "load/evidence.hpp"
#include "support/safetensors_writer.hpp"
#include "support/temp_dir.hpp"

namespace preload {
namespace {

using test::stored;
using test::TempDir;
using testing::ElementsAre;
using testing::IsEmpty;

Receipt sampled(const Checkpoint& checkpoint, const std::vector<bool>& wanted = {}) {
  Receipt receipt = take_receipt(checkpoint);
  add_samples(receipt, checkpoint, wanted);
  return receipt;
}

Receipt sampled(const TempDir& model) { return sampled(open_checkpoint(model.path(), {})); }

void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }

TEST(Receipt, IsWhatTheFileSystemSaysByName) {
  const TempDir model;
  write_checkpoint(model, {{stored("a", "U8", {10})}, {stored("b", "U8", {20})}});
  settle();
  const Checkpoint checkpoint = open_checkpoint(model.path(), {});
  const Receipt receipt = take_receipt(checkpoint);
  ASSERT_EQ(receipt.size(), 2U);
  EXPECT_LT(receipt[0].name, receipt[1].name);
  EXPECT_EQ(receipt[0].inode, checkpoint.files[0].inode);
  EXPECT_EQ(receipt[0].ctime_ns, checkpoint.files[0].ctime_ns);
  EXPECT_TRUE(receipt[0].settled);
  EXPECT_EQ(receipt[0].sample, "");
}

TEST(Receipt, OfFilesJustWrittenOrChangedProvesNothing) {
  const TempDir model;
  write_checkpoint(model, {{stored("a", "U8", {10})}});
  const Checkpoint young = open_checkpoint(model.path(), {});
  EXPECT_FALSE(take_receipt(young)[0].settled);
  EXPECT_FALSE(same_files(take_receipt(young), take_receipt(young)));
  settle();
  EXPECT_TRUE(take_receipt(young)[0].settled);
  model.flip_byte("model.safetensors", model.size("model.safetensors") - 1);
  settle();
  EXPECT_FALSE(take_receipt(young)[0].settled);
}

TEST(Receipt, SurvivesItsJson) {
  Receipt receipt{{"b", 1, 2, 3, 4, true, "tt", "ss"}, {"c", 5, 6, -7, -8, false, "", ""}};
  EXPECT_EQ(receipt_from_json(to_json(receipt)), receipt);
  for (const char* bad : {"", "[", "[1]", R"([{"name":"a"}])", R"({"a":1})"}) {
    EXPECT_THROW(receipt_from_json(bad), Error) << bad;
  }
}

TEST(Sample, DoesNotDependOnHowTheFileOrdersItsTensors) {
  const TempDir one;
  const TempDir other;
  write_checkpoint(one, {{stored("a", "U8", {9000}), stored("b", "F32", {5000})}});
  write_checkpoint(other, {{stored("b", "F32", {5000}), stored("a", "U8", {9000})}});
  EXPECT_EQ(sampled(one)[0].sample, sampled(other)[0].sample);
  EXPECT_EQ(sampled(one)[0].tensors, sampled(other)[0].tensors);
  EXPECT_TRUE(same_samples(sampled(one), sampled(other)));
}

TEST(Sample, SeesEveryByteOfASmallFile) {
  const TempDir model;
  write_checkpoint(model, {{stored("a", "U8", {900}), stored("b", "U8", {30})}});
  const Receipt before = sampled(model);
  const std::uint64_t end = model.size("model.safetensors");
  for (std::uint64_t at = end - 930; at < end; ++at) {
    model.flip_byte("model.safetensors", at);
    EXPECT_THAT(differing_files(before, sampled(model)), ElementsAre("model.safetensors")) << at;
    model.flip_byte("model.safetensors", at);
  }
  EXPECT_THAT(differing_files(before, sampled(model)), IsEmpty());
}

TEST(Sample, NamesTheFileThatDiffersAndNoOther) {
  const TempDir model;
  write_checkpoint(model, {{stored("a", "U8", {100})}, {stored("b", "U8", {100})}});
  const Receipt before = sampled(model);
  const std::string second = before[1].name;
  model.flip_byte(second, model.size(second) - 1);
  EXPECT_THAT(differing_files(before, sampled(model)), ElementsAre(second));
  EXPECT_FALSE(same_samples(before, sampled(model)));
}

TEST(Sample, LeavesOutWhatNobodyUses) {
  const TempDir model;
  write_checkpoint(model, {{stored("used", "U8", {100}), stored("unused", "U8", {100})}});
  const auto take = [&] {
    const Checkpoint checkpoint = open_checkpoint(model.path(), {});
    std::vector<bool> wanted;
    for (const SourceTensor& tensor : checkpoint.tensors) wanted.push_back(tensor.name == "used");
    return sampled(checkpoint, wanted);
  };
  const Receipt before = take();
  model.flip_byte("model.safetensors", model.size("model.safetensors") - 1);  // of the last tensor
  EXPECT_THAT(differing_files(before, take()), IsEmpty());
}

TEST(Sample, OfFilesCutDifferentlySaysNothing) {
  const TempDir one;
  const TempDir other;
  write_checkpoint(one, {{stored("a", "U8", {100}), stored("b", "U8", {100})}});
  write_checkpoint(other, {{stored("a", "U8", {100})}});
  EXPECT_THAT(differing_files(sampled(one), sampled(other)), IsEmpty());
  EXPECT_FALSE(same_samples(sampled(one), sampled(other)));
}

TEST(Evidence, AnyMemberOfTheStatReceiptCounts) {
  const FileReceipt file{"a", 1, 2, 3, 4, true, "", ""};
  EXPECT_TRUE(same_files({file}, {file}));
  const auto differs = [&](auto change) {
    FileReceipt other = file;
    change(other);
    return !same_files({file}, {other});
  };
  EXPECT_TRUE(differs([](FileReceipt& f) { f.name = "b"; }));
  EXPECT_TRUE(differs([](FileReceipt& f) { ++f.bytes; }));
  EXPECT_TRUE(differs([](FileReceipt& f) { ++f.inode; }));
  EXPECT_TRUE(differs([](FileReceipt& f) { ++f.mtime_ns; }));
  EXPECT_TRUE(differs([](FileReceipt& f) { ++f.ctime_ns; }));
  EXPECT_TRUE(differs([](FileReceipt& f) { f.settled = false; }));
  EXPECT_FALSE(same_files({file}, {file, file}));
  EXPECT_FALSE(same_files({}, {}));
}

}  // namespace
}  // namespace preload
