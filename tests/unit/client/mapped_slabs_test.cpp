// SPDX-License-Identifier: Apache-2.0
#include "client/mapped_slabs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1 << 20;

wire::SlabInfo slab(std::uint64_t bytes, TensorClass cls) { return {bytes, cls, "host", ""}; }

const std::vector<wire::SlabInfo> kSlabs{slab(5 * kMiB, TensorClass::kShared),
                                         slab(0, TensorClass::kShared),
                                         slab(2 * kMiB, TensorClass::kPrivate)};

TEST(MappedSlabs, BeginAtMultiplesOfTwoMebibytes) {
  EXPECT_THAT(range_offsets(kSlabs), ElementsAre(0, 6 * kMiB, 6 * kMiB, 8 * kMiB));
}

TEST(MappedSlabs, NeedRoomForPrivateTensorsAloneWhenMapped) {
  require_room(kSlabs, {}, 2 * kMiB, "GPU memory");
  EXPECT_THROW(require_room(kSlabs, {}, 2 * kMiB - 1, "GPU memory"), Error);
}

TEST(MappedSlabs, NeedRoomForAllWhenCopied) {
  const Placement copy{.copy = true};
  require_room(kSlabs, copy, 7 * kMiB, "GPU memory");
  try {
    require_room(kSlabs, copy, 7 * kMiB - 1, "GPU memory");
    FAIL() << "a copy that does not fit was let through";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kMemory);
    EXPECT_THAT(error.what(), HasSubstr("a copy of the weights takes 7.00 MiB of GPU memory"));
    EXPECT_THAT(error.what(), HasSubstr("map the weights instead"));
  }
}

}  // namespace
}  // namespace preload::client
