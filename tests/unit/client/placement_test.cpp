// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>

#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

constexpr std::uint64_t kMiB2 = 2 << 20;

class PlacementTest : public ClientTest {
 protected:
  void SetUp() override { serve(); }
  static preload_info info(const AttachmentPtr& attachment) {
    preload_info info{};
    info.struct_size = sizeof(info);
    EXPECT_EQ(preload_get_info(attachment.get(), &info), PRELOAD_OK);
    return info;
  }
  static preload_slab slab(const AttachmentPtr& attachment, std::uint32_t index) {
    preload_slab slab{};
    slab.struct_size = sizeof(slab);
    EXPECT_EQ(preload_get_slab(attachment.get(), index, &slab), PRELOAD_OK);
    return slab;
  }
  preload_attach_options at(std::uint64_t address) const {
    preload_attach_options o = options();
    o.base_address = address;
    return o;
  }
};

TEST_F(PlacementTest, PutsAllSlabsIntoOneAlignedRangeAndTellsIt) {
  const AttachmentPtr attachment = attach();
  const preload_info range = info(attachment);
  EXPECT_EQ(range.base_address % kMiB2, 0U);
  EXPECT_EQ(range.is_copy, 0);
  std::uint64_t offset = 0;
  for (std::uint32_t i = 0; i < range.slab_count; ++i) {
    const preload_slab each = slab(attachment, i);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(each.data), range.base_address + offset);
    offset += (each.bytes + kMiB2 - 1) / kMiB2 * kMiB2;
  }
  EXPECT_EQ(range.range_bytes, offset);
}

TEST_F(PlacementTest, GivesASuccessorTheAddressesOfItsPredecessor) {
  AttachmentPtr attachment = attach();
  const std::uint64_t base = info(attachment).base_address;
  void* const data = tensor(attachment, "w").data;
  void* const scale = tensor(attachment, "scale").data;
  attachment.reset();
  attachment = attach(at(base));
  EXPECT_EQ(info(attachment).base_address, base);
  EXPECT_EQ(tensor(attachment, "w").data, data);
  EXPECT_EQ(tensor(attachment, "scale").data, scale);
  EXPECT_EQ(text(tensor(attachment, "w")), bytes_of_w());
}

TEST_F(PlacementTest, RefusesARangeThatIsTakenAndHarmsNothingThere) {
  const AttachmentPtr first = attach();
  const std::uint64_t base = info(first).base_address;
  EXPECT_EQ(refusal(at(base)), PRELOAD_E_ADDRESS);
  EXPECT_NE(std::string(preload_last_error()).find("cannot lie at 0x"), std::string::npos);
  EXPECT_EQ(text(tensor(first, "w")), bytes_of_w());
  EXPECT_TRUE(server_->wait_for_leases(1));
}

TEST_F(PlacementTest, RefusesABaseThatCannotBeOne) {
  EXPECT_EQ(refusal(at(4096)), PRELOAD_E_USAGE);
}

TEST_F(PlacementTest, GivesEveryAddressBackOnDetach) {
  AttachmentPtr attachment = attach();
  const preload_info range = info(attachment);
  attachment.reset();
  void* const base = reinterpret_cast<void*>(static_cast<std::uintptr_t>(range.base_address));
  void* const again = ::mmap(base, range.range_bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(again, base) << "something is left in the range";
  ::munmap(again, range.range_bytes);
}

TEST_F(PlacementTest, CopiesAreWritableAndLetTheDaemonGo) {
  preload_attach_options o = options();
  o.mode = PRELOAD_MODE_COPY;
  const AttachmentPtr copy = attach(o);
  EXPECT_EQ(info(copy).is_copy, 1);
  EXPECT_TRUE(server_->wait_for_leases(0));
  EXPECT_EQ(refusal(options()), PRELOAD_E_RELEASED);
  const preload_tensor w = tensor(copy, "w");
  EXPECT_EQ(w.is_private, 1);
  EXPECT_EQ(text(w), bytes_of_w());
  std::memset(w.data, 0x5a, w.bytes);
  EXPECT_EQ(text(tensor(copy, "tied")), std::string(w.bytes, 0x5a));
}

TEST_F(PlacementTest, ACopyWaitsForNobodyAndTakesNothingFromOthers) {
  const AttachmentPtr other = attach();
  preload_attach_options o = options();
  o.mode = PRELOAD_MODE_COPY;
  const AttachmentPtr copy = attach(o);
  std::memset(tensor(copy, "w").data, 0, tensor(copy, "w").bytes);
  EXPECT_EQ(text(tensor(other, "w")), bytes_of_w());
  EXPECT_TRUE(server_->wait_for_leases(1));
}

TEST_F(PlacementTest, RefusesAModeThatItDoesNotKnow) {
  preload_attach_options o = options();
  o.mode = 2;
  EXPECT_EQ(refusal(o), PRELOAD_E_USAGE);
}

TEST_F(PlacementTest, ServesACallerThatWasBuiltBeforeModes) {
  preload_attach_options o = options();
  o.struct_size = offsetof(preload_attach_options, mode);
  o.mode = 77;
  o.base_address = 1;
  EXPECT_EQ(info(attach(o)).is_copy, 0);
}

}  // namespace
}  // namespace preload::test
