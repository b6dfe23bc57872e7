// SPDX-License-Identifier: Apache-2.0
#include "warmup/traffic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace preload::warmup {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Traffic* find(const std::vector<Traffic>& traffic, Operation operation) {
  const auto at = std::ranges::find(traffic, operation, &Traffic::operation);
  return at == traffic.end() ? nullptr : &*at;
}

EngineGroup group(GroupKind kind, int ranks) {
  EngineGroup group{{kind}, {}, 0};
  for (int i = 0; i < ranks; ++i) group.ranks.push_back(i);
  return group;
}

// Llama-8B: hidden 4096, vocabulary 128256.
const MessageSizes kLlama{4096, 128256, 0, 2, 8192, 1ULL << 30};

TEST(Traffic, TokenBucketsDoubleUpToTheMost) {
  EXPECT_THAT(token_buckets(8), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(token_buckets(10), ElementsAre(1, 2, 4, 8, 10));
  EXPECT_THAT(token_buckets(1), ElementsAre(1));
}

TEST(Traffic, OfTensorParallelLayersIsAllReducesOfHiddenTimesTokens) {
  const auto traffic = group_traffic(group(GroupKind::kTensor, 2), kLlama);
  EXPECT_EQ(traffic.front().operation, Operation::kAllReduce);
  const auto& messages = traffic.front().messages;
  ASSERT_EQ(messages.size(), 14U);  // 1 to 8192 tokens
  EXPECT_EQ(messages.front(), (Message{8192, true}));
  EXPECT_EQ(messages.at(9), (Message{512 * 8192, true}));  // the last that vLLM captures
  EXPECT_EQ(messages.at(10), (Message{1024 * 8192, false}));
  EXPECT_EQ(messages.back(), (Message{8192ULL * 8192, false}));
}

TEST(Traffic, OfLogitsIsAnAllGatherOfTheVocabulary) {
  const MessageSizes sizes{64, 128256, 0, 2, 1, 1ULL << 30};
  const auto traffic = group_traffic(group(GroupKind::kTensor, 2), sizes);
  const Traffic* gather = find(traffic, Operation::kAllGather);
  ASSERT_NE(gather, nullptr);
  EXPECT_THAT(gather->messages,
              ElementsAre(Message{256512, false}));  // 2 * 128256, a multiple of 32
}

TEST(Traffic, OfExpertsGoesToEveryRankAndBack) {
  // 4 ranks of 2 tokens, each for 8 experts, hidden 7168 in 2 bytes.
  const MessageSizes sizes{7168, 129280, 8, 2, 2, 1ULL << 30};
  const auto traffic = group_traffic(group(GroupKind::kExpert, 4), sizes);
  EXPECT_THAT(find(traffic, Operation::kAllToAll)->messages,
              ElementsAre(Message{8 * 14336, false}, Message{2 * 8 * 14336, false}));
  EXPECT_THAT(find(traffic, Operation::kAllGather)->messages,
              ElementsAre(Message{4 * 14336, true}, Message{8 * 14336, true}));
  EXPECT_EQ(find(traffic, Operation::kReduceScatter)->messages,
            find(traffic, Operation::kAllGather)->messages);
  EXPECT_EQ(find(traffic, Operation::kAllReduce), nullptr);
}

TEST(Traffic, BetweenStagesIsMessages) {
  const auto traffic = group_traffic(group(GroupKind::kPipeline, 2), kLlama);
  ASSERT_EQ(traffic.size(), 1U);
  EXPECT_EQ(traffic[0].operation, Operation::kSendReceive);
  EXPECT_EQ(traffic[0].messages.size(), 14U);
}

TEST(Traffic, LeavesOutWhatTheBuffersDoNotHold) {
  MessageSizes sizes = kLlama;
  sizes.most_bytes = 1 << 20;
  const auto traffic = group_traffic(group(GroupKind::kTensor, 8), sizes);
  EXPECT_EQ(largest_message(traffic), 1U << 20);
  sizes.most_bytes = 100;
  EXPECT_THAT(group_traffic(group(GroupKind::kTensor, 8), sizes), IsEmpty());
}

TEST(Traffic, CountsInWholePartsOfEveryRank) {
  const MessageSizes sizes{1000, 32001, 2, 2, 100, 1ULL << 30};
  for (const int ranks : {2, 3, 7}) {
    for (const GroupKind kind : {GroupKind::kTensor, GroupKind::kExpert, GroupKind::kPipeline}) {
      for (const Traffic& each : group_traffic(group(kind, ranks), sizes)) {
        for (const Message& message : each.messages) {
          EXPECT_EQ(message.bytes % (static_cast<std::uint64_t>(ranks) * 16), 0U);
        }
      }
    }
  }
}

TEST(Traffic, SizesKeepAQuarterOfDistance) {
  for (const Traffic& each : group_traffic(group(GroupKind::kTensor, 2), kLlama)) {
    for (std::size_t i = 1; i + 1 < each.messages.size(); ++i) {
      EXPECT_GE(each.messages[i].bytes * 4, each.messages[i - 1].bytes * 5);
    }
  }
}

}  // namespace
}  // namespace preload::warmup
