// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tuner/tuning_table.hpp"
#include "unit/tuner/sample_table.hpp"
#include "unit/wire/socket_pair.hpp"
#include "wire/frame_reader.hpp"
#include "wire/messages.hpp"
#include "wire/residency_messages.hpp"

// Deterministic mutation of well-formed bytes: every decoder of untrusted input either returns or
// throws the Error that it says, under the sanitizers too.

namespace preload::wire {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string operator()(const std::string& original) {
    std::string bytes = original;
    for (std::uint64_t n = random_() % 4 + 1; n-- > 0 && !bytes.empty();) mutate(bytes);
    return bytes;
  }

 private:
  void mutate(std::string& bytes) {
    static const std::vector<std::string> kTokens{
        "null", "-1",      "1e999",   "18446744073709551616", "[]", "{}", "\"\"", "true",
        "\xFF", "\\u0000", "\\ud800", "[[[[[[[[[[[[[[[[[[[[", ",",  ":",  "\"",   "}"};
    const std::size_t at = random_() % bytes.size();
    switch (random_() % 5) {
      case 0:
        bytes[at] = static_cast<char>(random_());
        break;
      case 1:
        bytes.erase(at, random_() % 8);
        break;
      case 2:
        bytes.insert(at, kTokens[random_() % kTokens.size()]);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random_() % bytes.size(), random_() % 32));
        break;
      default:
        bytes.resize(at);
    }
  }
  std::mt19937_64 random_;
};

template <class Decode>
void survives(const std::string& original, Decode decode, Errc code = Errc::kProtocol) {
  Mutator mutate(original.size());
  int refused = 0;
  for (int round = 0; round < 5'000; ++round) {
    const std::string bytes = mutate(original);
    try {
      decode(bytes);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), code) << bytes;
      ++refused;
    }
  }
  EXPECT_GT(refused, 1'000);
}

AttachReply attach_reply() {
  AttachReply reply;
  reply.slabs = {{1 << 21, TensorClass::kShared, "vmm", ""},
                 {1 << 21, TensorClass::kPrivate, "cuda-ipc", std::string(64, 'h')}};
  return reply;
}

DaemonStatus status() {
  DaemonStatus status;
  status.key = status.checkpoint = std::string(64, 'a');
  status.receipt_json = R"([{"name":"x","bytes":1}])";
  status.leases = {{1, "engine", 2.5}};
  status.code = "memory";
  return status;
}

TEST(DecodeFuzz, AttachRequestsAreDecodedOrRefused) {
  AttachRequest request;
  request.expect.key = std::string(64, 'a');
  request.expect.fields = {{"tp_size", "2"}};
  request.client = {1, "engine", "0.1.0"};
  survives(to_json(request), [](const std::string& b) { attach_request_from_json(b); });
}

TEST(DecodeFuzz, AttachRepliesAreDecodedOrRefused) {
  survives(to_json(attach_reply()), [](const std::string& b) { attach_reply_from_json(b); });
}

TEST(DecodeFuzz, StatusRepliesAreDecodedOrRefused) {
  survives(to_json(status()), [](const std::string& b) { daemon_status_from_json(b); });
}

TEST(DecodeFuzz, DepositsAreDecodedOrRefused) {
  DepositRequest request;
  request.step = DepositRequest::Step::kLease;
  request.fds = 3;
  request.place = "d57c11ff1ae092be";
  request.lease = {7, "engine", 2.5, 3};
  survives(to_json(request), [](const std::string& b) { deposit_request_from_json(b); });
  request.step = DepositRequest::Step::kArtifact;
  request.artifact = {"a/b", 12, "text"};
  survives(to_json(request), [](const std::string& b) { deposit_request_from_json(b); });
  request.step = DepositRequest::Step::kForget;
  request.keys = {"a", "b/c"};
  survives(to_json(request), [](const std::string& b) { deposit_request_from_json(b); });
  survives(to_json(DepositReply{{{7, "engine", 2.5, 3}}, 2}),
           [](const std::string& b) { deposit_reply_from_json(b); });
}

TEST(DecodeFuzz, PackagesAndHandoversAreDecodedOrRefused) {
  PackageReply reply;
  reply.fds = 12;
  reply.leases = {{7, "engine", 2.5, 3}};
  survives(to_json(reply), [](const std::string& b) { package_reply_from_json(b); });
  survives(to_json(HandoverRequest{HandoverRequest::Step::kCommit}),
           [](const std::string& b) { handover_request_from_json(b); });
  KeeperStatus keeper;
  keeper.deposits = {status()};
  survives(to_json(keeper), [](const std::string& b) { keeper_status_from_json(b); });
}

TEST(DecodeFuzz, ErrorsAreDecodedOrRefused) {
  ErrorReply error;
  error.fields = {{"tp_size", {"4", "2"}}};
  error.retry_after_ms = 5;
  survives(to_json(error), [](const std::string& b) { error_reply_from_json(b); });
}

TEST(DecodeFuzz, TuningTablesAreDecodedOrRefused) {
  survives(
      tuner::to_json(test::sample_table()),
      [](const std::string& b) { tuner::tuning_table_from_json(b, "a table"); }, Errc::kUsage);
}

TEST(DecodeFuzz, FramesAreReadOrRefused) {
  std::string frame(kHeaderBytes, '\0');
  const std::string body = to_json(StopRequest{});
  const auto header = encode_header(Type::kStop, body.size());
  std::memcpy(frame.data(), header.data(), header.size());
  frame += body;
  Mutator mutate(1);
  int whole = 0;
  int refused = 0;
  for (int round = 0; round < 5'000; ++round) {
    SocketPair pair;
    const std::string bytes = mutate(frame);
    ASSERT_EQ(::write(pair.a(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    pair.close_a();
    FrameReader reader(1);
    try {
      while (reader.read(pair.b()) == FrameReader::Result::kFrame) {
        EXPECT_LE(reader.take().body.size(), bytes.size());
        ++whole;
      }
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::kProtocol);
      ++refused;
    }
  }
  EXPECT_GT(whole, 100);
  EXPECT_GT(refused, 1'000);
}

}  // namespace
}  // namespace preload::wire
