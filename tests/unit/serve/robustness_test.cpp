// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstring>
#include <fstream>
#include <random>

#include "unit/serve/live_server.hpp"
#include "unit/wire/socket_pair.hpp"

// Whatever a peer does, the others are served within 100 ms and nothing grows.

namespace preload {
namespace {

using wire::open_descriptors;
using wire::Type;
using Clock = std::chrono::steady_clock;

constexpr auto kServedWithin = std::chrono::milliseconds(100);

void write_raw(int socket, std::string_view bytes) {
  [[maybe_unused]] const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

std::string frame_bytes(Type type, std::string_view body, std::uint32_t announced) {
  const auto header = wire::encode_header(type, 0);
  std::string bytes(reinterpret_cast<const char*>(header.data()), header.size());
  std::memcpy(bytes.data() + 8, &announced, 4);
  return bytes + std::string(body);
}

// The fastest of three: a busy machine may hold up one of them.
void expect_others_served(const LiveServer& live) {
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    attach(live);
    best = std::min(best, Clock::now() - begin);
  }
  EXPECT_LT(best, kServedWithin);
}

// True when the peer closed, after whatever it said.
bool closes_within(int socket, std::chrono::milliseconds limit) {
  return eventually(
      [&] {
        std::array<char, 4096> buffer;
        const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno != EAGAIN);
      },
      limit);
}

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == "VmRSS:") {
      std::size_t kib = 0;
      status >> kib;
      return kib;
    }
  return 0;
}

TEST(Robustness, ASilentClientDelaysNobody) {
  LiveServer live;
  live.start();
  const Fd silent = live.connect();
  expect_others_served(live);
  // It may still ask.
  EXPECT_EQ(wire::call_status(silent.get(), 5000).state, wire::DaemonState::kReady);
}

TEST(Robustness, HalfAFrameDelaysNobodyAndTimesOut) {
  ServerOptions options;
  options.sessions.half_request_timeout_ms = 300;
  LiveServer live(sample_residency(), options);
  live.start();
  const Fd half_header = live.connect();
  const Fd half_body = live.connect();
  write_raw(half_header.get(), "PRLD\x01");
  write_raw(half_body.get(), frame_bytes(Type::kStatus, "{", 100));
  expect_others_served(live);
  EXPECT_TRUE(closes_within(half_header.get(), std::chrono::milliseconds(1500)));
  EXPECT_TRUE(closes_within(half_body.get(), std::chrono::milliseconds(1500)));
}

TEST(Robustness, ASlowButSteadyClientIsServedWithinTheLimit) {
  LiveServer live;
  live.start();
  const Fd slow = live.connect();
  for (const char c : frame_bytes(Type::kStatus, "{}", 2)) {
    write_raw(slow.get(), {&c, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(wire::receive_frame(slow.get(), 5000).type, Type::kStatus);
}

TEST(Robustness, AHugeLengthIsAnsweredWithAnErrorAndClosed) {
  LiveServer live;
  live.start();
  const Fd socket = live.connect();
  write_raw(socket.get(), frame_bytes(Type::kStatus, "", 0xFFFFFFFF));
  const wire::Frame frame = wire::receive_frame(socket.get(), 5000);
  ASSERT_EQ(frame.type, Type::kError);
  EXPECT_EQ(wire::error_reply_from_json(frame.body).code, Errc::kProtocol);
  EXPECT_TRUE(closes_within(socket.get(), std::chrono::milliseconds(1000)));
  expect_others_served(live);
}

TEST(Robustness, RandomBytesAreAnsweredWithAnErrorOrAClose) {
  LiveServer live;
  live.start();
  std::mt19937_64 random(7);
  for (int round = 0; round < 50; ++round) {
    const Fd socket = live.connect();
    std::string bytes(16 + random() % 5000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    write_raw(socket.get(), bytes);
    EXPECT_TRUE(closes_within(socket.get(), std::chrono::milliseconds(1000)));
  }
  expect_others_served(live);
}

TEST(Robustness, ABodyThatIsNoJsonIsAnsweredWithAnError) {
  LiveServer live;
  live.start();
  for (const Type type : {Type::kHello, Type::kAttach, Type::kRelease, Type::kStop}) {
    const Fd socket = live.connect();
    try {
      wire::exchange(socket.get(), type, "{]", {}, 5000);
      ADD_FAILURE() << static_cast<int>(type);
    } catch (const wire::PeerError& error) {
      EXPECT_EQ(error.code(), Errc::kProtocol);
    }
  }
  EXPECT_EQ(live.status().state, wire::DaemonState::kReady);
}

TEST(Robustness, AMessageTypeThatIsNotServedLeavesTheConnectionUsable) {
  LiveServer live;
  live.start();
  const Fd socket = live.connect();
  EXPECT_EQ(refusal([&] { wire::exchange(socket.get(), Type::kAdopt, "{}", {}, 5000); }).code,
            Errc::kProtocol);
  EXPECT_NO_THROW(wire::call_status(socket.get(), 5000));
}

TEST(Robustness, AThousandConnectionsAreCappedAndOthersServed) {
  ServerOptions options;
  options.sessions.max_connections = 64;
  LiveServer live(sample_residency(), options);
  live.start();
  attach(live);
  const std::size_t descriptors = open_descriptors();
  std::vector<Fd> flood;
  for (int i = 0; i < 400; ++i) flood.push_back(live.connect());
  expect_others_served(live);
  for (int i = 0; i < 600; ++i) {
    flood.push_back(live.connect());
    if (flood.size() > 400) flood.erase(flood.begin());
    if (i % 3 == 0) write_raw(flood.back().get(), "PRLD");
    if (i % 3 == 1) write_raw(flood.back().get(), frame_bytes(Type::kAttach, "{", 1000));
  }
  expect_others_served(live);
  // The daemon holds no more than its cap; the rest are this test's own ends.
  EXPECT_LE(open_descriptors(), descriptors + flood.size() + options.sessions.max_connections + 1);
  flood.clear();
  EXPECT_TRUE(
      eventually([&] { return open_descriptors() <= descriptors; }, std::chrono::seconds(7)));
}

TEST(Robustness, TheOldestSilentConnectionIsDroppedFirst) {
  ServerOptions options;
  options.sessions.max_connections = 3;
  LiveServer live(sample_residency(), options);
  live.start();
  const Fd spoken = live.connect();
  wire::call_status(spoken.get(), 5000);
  const Fd oldest_silent = live.connect();
  live.status();
  const Fd silent = live.connect();
  wire::call_status(live.connect().get(), 5000);
  EXPECT_TRUE(closes_within(oldest_silent.get(), std::chrono::milliseconds(1000)));
  EXPECT_NO_THROW(wire::call_status(spoken.get(), 5000));
}

TEST(Robustness, DescriptorsAreClosedWhereTheyAreNotCalledFor) {
  LiveServer live;
  live.start();
  LeasePipe pipe;
  attach(live);
  ASSERT_TRUE(eventually([&] { return live.status().leases.empty(); }));
  const std::size_t before = open_descriptors();
  for (const Type type : {Type::kStatus, Type::kStop, Type::kHello, Type::kDescribe}) {
    const Fd socket = live.connect();
    EXPECT_EQ(
        refusal([&] { wire::exchange(socket.get(), type, "{}", {pipe.read.get()}, 5000); }).code,
        Errc::kProtocol);
  }
  {
    const Fd socket = live.connect();
    EXPECT_EQ(refusal([&] {
                wire::exchange(socket.get(), Type::kAttach, wire::to_json(attach_request()),
                               std::vector<int>(wire::kMaxFds, pipe.read.get()), 5000);
              }).code,
              Errc::kProtocol);
  }
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; }));
}

TEST(Robustness, AttachInsistsOnTheReadEndOfAPipe) {
  LiveServer live;
  live.start();
  LeasePipe pipe;
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::mkfifo(live.temp().file("fifo").c_str(), 0600), 0);
  const Fd fifo(::open(live.temp().file("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  for (const std::vector<int>& fds :
       std::vector<std::vector<int>>{{}, {null.get()}, {pipe.write.get()}, {fifo.get()}}) {
    const Fd socket = live.connect();
    const wire::ErrorReply refused = refusal([&] {
      wire::exchange(socket.get(), Type::kAttach, wire::to_json(attach_request()), fds, 5000);
    });
    EXPECT_EQ(refused.code, Errc::kProtocol);
    EXPECT_THAT(refused.message, testing::HasSubstr("lease pipe"));
  }
  EXPECT_TRUE(live.status().leases.empty());
}

TEST(Robustness, AClientThatTakesNoAnswerDelaysNobody) {
  ServerOptions options;
  options.sessions.half_request_timeout_ms = 300;
  LiveServer live(sample_residency(), options);
  live.start();
  const Fd greedy = live.connect();
  const std::string request = frame_bytes(Type::kStatus, "{}", 2);
  for (int i = 0; i < 20'000; ++i)  // until its own socket is full: the daemon has stopped reading
    if (::send(greedy.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
      break;
  expect_others_served(live);
  EXPECT_TRUE(eventually(
      [&] {
        pollfd entry{greedy.get(), POLLOUT, 0};
        return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
      },
      std::chrono::seconds(3)))
      << "a peer that does not read is let go";
}

TEST(Robustness, MemoryStaysConstantUnderGarbage) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory: the resident size says nothing";
#endif
  LiveServer live;
  live.start();
  const std::string garbage = frame_bytes(Type::kAttach, std::string(1 << 16, '['), 1 << 16);
  const auto torture = [&] {
    for (int i = 0; i < 300; ++i) {
      const Fd socket = live.connect();
      write_raw(socket.get(), garbage);
    }
    live.status();
  };
  torture();
  const std::size_t before = resident_kib();
  torture();
  torture();
  EXPECT_LT(resident_kib(), before + 32 * 1024);
}

TEST(Robustness, AClientOfAnotherUserIsTurnedAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  LiveServer live;
  // The socket's mode keeps others out already; the daemon does not rely on it.
  ASSERT_EQ(::chmod(live.temp().path().c_str(), 0711), 0);
  ASSERT_EQ(
      ::chmod(live.temp().file(Endpoint{"host:0", "", Role::kTarget}.socket_name()).c_str(), 0666),
      0);
  const std::string name = Endpoint{"host:0", "", Role::kTarget}.socket_name();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(12345) != 0 || ::setuid(12345) != 0) ::_exit(9);
    try {
      const Fd socket = connect_to(live.directory(), name, 5000);
      wire::call_status(socket.get(), 3000);
    } catch (const Error& error) {
      ::_exit(error.code() == Errc::kUnavailable ? 3 : 4);
    }
    ::_exit(0);
  }
  live.start();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3) << "closed without a word";
  EXPECT_EQ(live.status().state, wire::DaemonState::kReady);
}

}  // namespace
}  // namespace preload
