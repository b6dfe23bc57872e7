// SPDX-License-Identifier: Apache-2.0
#include "client/dlpack.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

using client::dl::ManagedTensor;
using client::dl::ManagedTensorVersioned;
using ::testing::ElementsAre;

class DlpackViews : public ClientTest {
 protected:
  void SetUp() override { serve(); }
  static std::uint64_t index_of(const AttachmentPtr& attachment, const char* name) {
    std::uint64_t index = 0;
    EXPECT_EQ(preload_find_tensor(attachment.get(), name, &index), PRELOAD_OK);
    return index;
  }
};

TEST_F(DlpackViews, DescribeATensorAndKeepItMapped) {
  AttachmentPtr attachment = attach();
  void* managed = nullptr;
  ASSERT_EQ(preload_dlpack_tensor(attachment.get(), index_of(attachment, "w"), 0, &managed),
            PRELOAD_OK);
  attachment.reset();
  EXPECT_EQ(server_->leases(), 1U);
  auto* view = static_cast<ManagedTensor*>(managed);
  EXPECT_EQ(view->tensor.device_type, 1);
  EXPECT_EQ(view->tensor.dtype.code, 4);  // kDLBfloat
  EXPECT_EQ(view->tensor.dtype.bits, 16);
  EXPECT_THAT(std::vector<std::int64_t>(view->tensor.shape, view->tensor.shape + 2),
              ElementsAre(3, 5));
  EXPECT_EQ(std::string(static_cast<const char*>(view->tensor.data), 30), bytes_of_w());
  view->deleter(view);
  EXPECT_TRUE(server_->wait_for_leases(0));
}

TEST_F(DlpackViews, OfVersionOneSayWhatIsReadOnly) {
  const AttachmentPtr attachment = attach();
  for (const auto& [name, flags] : {std::pair{"w", 1U}, std::pair{"scale", 0U}}) {
    void* managed = nullptr;
    ASSERT_EQ(preload_dlpack_tensor(attachment.get(), index_of(attachment, name), 1, &managed),
              PRELOAD_OK);
    EXPECT_EQ(static_cast<ManagedTensorVersioned*>(managed)->major, 1U);
    EXPECT_EQ(static_cast<ManagedTensorVersioned*>(managed)->flags, flags) << name;
    preload_dlpack_free(managed, 1);
  }
}

TEST_F(DlpackViews, ShowASlabAsBytes) {
  const AttachmentPtr attachment = attach();
  void* managed = nullptr;
  ASSERT_EQ(preload_dlpack_slab(attachment.get(), 0, 0, &managed), PRELOAD_OK);
  const auto& view = static_cast<ManagedTensor*>(managed)->tensor;
  EXPECT_EQ(view.dtype.code, 1);  // kDLUInt
  EXPECT_EQ(view.shape[0], 2 << 20);
  preload_dlpack_free(managed, 0);
  EXPECT_EQ(preload_dlpack_slab(attachment.get(), 2, 0, &managed), PRELOAD_E_USAGE);
}

TEST_F(DlpackViews, RefusePackedTypes) {
  const AttachmentPtr attachment = attach();
  void* managed = nullptr;
  EXPECT_EQ(preload_dlpack_tensor(attachment.get(), index_of(attachment, "dtype.F4"), 0, &managed),
            PRELOAD_E_USAGE);
  EXPECT_EQ(managed, nullptr);
}

}  // namespace
}  // namespace preload::test
