// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

#include "preload/client.hpp"
#include "unit/client/client_fixture.hpp"

namespace preload::test {
namespace {

class Wrapper : public ClientTest {
 protected:
  void SetUp() override { serve(); }
  AttachOptions options() const {
    AttachOptions options;
    options.socket_dir = socket_dir_;
    return options;
  }
};

TEST_F(Wrapper, IteratesOverTheTensors) {
  const Attachment attachment(options());
  std::vector<std::string> names;
  for (const Tensor& tensor : attachment) names.emplace_back(tensor.name());
  ASSERT_EQ(names.size(), attachment.size());
  EXPECT_EQ(names[0], "w");
  EXPECT_EQ(names[1], "tied");
}

TEST_F(Wrapper, SaysWhatAMatchRestsOn) {
  EXPECT_EQ(Attachment(options()).evidence(), "none");
  AttachOptions wanted = options();
  wanted.expect_json = R"({"fields": {"tp_size": 2}})";
  EXPECT_EQ(Attachment(wanted).evidence(), "key");
}

TEST_F(Wrapper, ViewsATensor) {
  const Attachment attachment(options());
  const Tensor w = attachment.at("w");
  EXPECT_EQ(w.dtype(), "BF16");
  EXPECT_THAT(w.shape(), ::testing::ElementsAre(3, 5));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(w.data()), w.bytes()), bytes_of_w());
  EXPECT_EQ(w.private_data(), nullptr);
  EXPECT_NE(attachment.at("scale").private_data(), nullptr);
  EXPECT_EQ(attachment.at("tied").alias_of(), 0U);
  EXPECT_FALSE(attachment.find("absent"));
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(Wrapper, ReadsATensorWhateverItsStrides) {
  const Attachment attachment(options());
  EXPECT_EQ(as_text(attachment.read(attachment.at("w"))), bytes_of_w());
  std::vector<float> transposed;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) transposed.push_back(static_cast<float>(10 * i + j));
  }
  EXPECT_EQ(as_text(attachment.read(attachment.at("strided"))), bytes_of(transposed));
  EXPECT_TRUE(attachment.read(attachment.at("empty")).empty());
}

TEST_F(Wrapper, RefusesToReadATensorIntoAPlaceOfAnotherSize) {
  const Attachment attachment(options());
  std::byte small[1];
  EXPECT_EQ(preload_read_tensor(attachment.get(), 0, small, sizeof(small)), PRELOAD_E_USAGE);
  EXPECT_THAT(preload_last_error(),
              ::testing::HasSubstr("w is 30 bytes in row-major order, not 1"));
}

TEST_F(Wrapper, ThrowsWithStatusAndText) {
  const Attachment attachment(options());
  try {
    attachment.at("absent");
    FAIL() << "no exception";
  } catch (const ClientError& error) {
    EXPECT_EQ(error.status(), PRELOAD_E_NOT_FOUND);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("absent"));
  }
}

TEST_F(Wrapper, TakesWaitsLongerThanTheInterfaceCounts) {
  using namespace std::chrono;
  EXPECT_EQ(detail::c_milliseconds(days(25)), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(detail::c_milliseconds(milliseconds::max()), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(detail::c_milliseconds(milliseconds(1500)), 1500);
  EXPECT_LT(detail::c_milliseconds(milliseconds::min()), 0);
  AttachOptions longer = options();
  longer.wait = days(25);  // negative, and refused, if it wrapped
  EXPECT_EQ(Attachment(longer).device(), "host:0");
}

TEST_F(Wrapper, MovesTheLeaseWithIt) {
  Attachment first(options());
  {
    const Attachment second = std::move(first);
    EXPECT_EQ(server_->leases(), 1U);
  }
  EXPECT_TRUE(server_->wait_for_leases(0));
}

}  // namespace
}  // namespace preload::test
