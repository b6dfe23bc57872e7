// SPDX-License-Identifier: Apache-2.0
#include "comm/job_message.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/job_channel.hpp"

namespace preload {
namespace {

std::pair<Fd, Fd> socket_pair() {
  int ends[2] = {-1, -1};
  check_sys(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), "socketpair");
  return {Fd(ends[0]), Fd(ends[1])};
}

JobMessage failed(std::string text) {
  JobMessage message;
  message.type = JobMessage::Type::kFailed;
  message.rank = 2;
  message.status = 3;
  message.text = std::move(text);
  return message;
}

TEST(JobMessage, ComesBackFromItsFrame) {
  JobMessage message = failed("a \"quoted\" text\n");
  message.lost = true;
  message.bytes = 5;
  message.total_bytes = 1ULL << 60;
  EXPECT_EQ(decode_body(encode_frame(message).substr(4)), message);
}

TEST(JobMessage, CutsALongTextAndSurvivesBytesThatAreNoUtf8) {
  const std::string frame = encode_frame(failed(std::string(1 << 20, 'x') + "\xff"));
  EXPECT_LE(frame.size(), kMaxJobMessageBytes);
  ASSERT_TRUE(decode_body(frame.substr(4)));
  EXPECT_TRUE(decode_body(encode_frame(failed("\xff\xfe")).substr(4)));
}

TEST(JobMessage, RefusesWhatIsNoMessage) {
  for (const char* body : {"", "[]", "{}", "{\"type\":\"NONSENSE\"}", "{\"type\":7}",
                           "{\"type\":", "{\"type\":\"FAILED\",\"rank\":\"two\"}", "\xff\xff"}) {
    EXPECT_FALSE(decode_body(body)) << body;
  }
}

// RFC 4231 gives HMAC-SHA256; the text under it is this protocol's own. The value was computed with
// Python's hmac module.
TEST(JobMessage, ProvesWithHmacSha256) {
  EXPECT_EQ(make_proof("00ff", Prover::kRank, "aa", "bb", 3),
            "ed51a4a9ce4ac60f490f007820398191d49b0876ec0479e7842f3cf74ce878a8");
  EXPECT_NE(make_proof("00ff", Prover::kRank, "aa", "bb", 3),
            make_proof("00ff", Prover::kHub, "aa", "bb", 3));
}

TEST(JobConnection, PutsAMessageTogetherFromItsBytes) {
  auto [left, right] = socket_pair();
  JobConnection reader(std::move(right));
  const std::string frame = encode_frame(failed("late"));
  std::vector<JobMessage> messages;
  for (char byte : frame) {
    EXPECT_TRUE(messages.empty());
    ASSERT_EQ(send(left.get(), &byte, 1, 0), 1);
    ASSERT_TRUE(reader.read(messages, kMaxStrangerBytes));
  }
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].text, "late");
}

TEST(JobConnection, RefusesALengthAboveTheLimitBeforeItsBytesArrive) {
  auto [left, right] = socket_pair();
  JobConnection reader(std::move(right));
  const std::string length("\x01\x04\0\0", 4);  // 1025
  ASSERT_EQ(send(left.get(), length.data(), length.size(), 0), 4);
  std::vector<JobMessage> messages;
  EXPECT_FALSE(reader.read(messages, kMaxStrangerBytes));
}

TEST(JobConnection, GivesUpOnAPeerThatDoesNotRead) {
  auto [left, right] = socket_pair();
  JobConnection writer(std::move(left));
  bool open = true;
  for (int i = 0; i < 400 && open; ++i) {
    writer.queue(failed(std::string(16 << 10, 'x')));
    open = writer.flush();
  }
  EXPECT_FALSE(open);
}

TEST(HubAddress, ComesBackFromItsText) {
  const HubAddress address{{"10.0.0.1", "fd00::1"}, "boot", 4711, "00ff"};
  EXPECT_EQ(decode_hub_address(encode(address)), address);
}

TEST(HubAddress, RefusesOtherTextWithoutRepeatingIt) {
  try {
    decode_hub_address("{\"secret\":\"hunter2\"");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("hunter2")));
  }
}

}  // namespace
}  // namespace preload
