// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <list>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "serve/http_message.hpp"
#include "unit/wire/socket_pair.hpp"

namespace preload {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

Fd connect_to_port(int port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check_sys(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
            "connect");
  return socket;
}

void say(const Fd& socket, std::string_view text) {
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// All that comes until the server closes its side.
std::string hear(const Fd& socket) {
  std::string text;
  std::array<char, 4096> buffer;
  pollfd polled{socket.get(), POLLIN, 0};
  while (::poll(&polled, 1, 20000) > 0) {
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ADD_FAILURE() << "the server does not end its answer";
  return text;
}

std::string ask(int port, std::string_view text) {
  const Fd socket = connect_to_port(port);
  say(socket, text);
  return hear(socket);
}

HttpReply echo(const HttpRequest& request) {
  if (request.path == "/fails") throw Error(Errc::kInternal, "it broke");
  return {request.path == "/sick" ? 503 : 200,
          request.path + "|" + request.query + "|" + request.accept + "\n"};
}

TEST(HttpServer, AnswersAGetWithStatusLengthAndBody) {
  const HttpServer server("127.0.0.1", 0, echo);
  const std::string answer =
      ask(server.port(), "GET /health?a=b HTTP/1.1\r\nHost: x\r\nACCEPT:  text/html \r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 22\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n/health|a=b|text/html\n"));
  EXPECT_THAT(ask(server.port(), "GET /sick HTTP/1.0\n\n"),
              StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  const HttpServer server("127.0.0.1", 0, echo);
  const std::string answer = ask(server.port(), "HEAD /x HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST(HttpServer, RefusesWhatIsNotARequestForIt) {
  const HttpServer server("127.0.0.1", 0, echo);
  EXPECT_THAT(ask(server.port(), "POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask(server.port(), std::string("\0\xff\n\n", 4)), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(server.port(), "GET http://x/ HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(server.port(), "GET / HTTP/2\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(server.port(), std::string(9000, 'x')), StartsWith("HTTP/1.1 431 "));
  const std::string broken = ask(server.port(), "GET /fails HTTP/1.1\r\n\r\n");
  EXPECT_THAT(broken, StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(broken, HasSubstr("it broke"));
}

TEST(HttpServer, AnswersOthersWhileHundredsAreSilentOrHalfWayThroughARequest) {
  const auto before = wire::open_descriptors();
  {
    const HttpServer server("127.0.0.1", 0, echo);
    std::list<Fd> silent;
    for (int i = 0; i < 300; ++i) {
      silent.push_back(connect_to_port(server.port()));
      // The server may have closed it by now, to make room.
      if (i % 2 == 0) ::send(silent.back().get(), "GET /hea", 8, MSG_NOSIGNAL);
    }
    const auto begin = Clock::now();
    EXPECT_THAT(ask(server.port(), "GET /x HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));  // less than one of them may take
  }
  EXPECT_EQ(wire::open_descriptors(), before);
}

TEST(HttpServer, EndsAtOnceWhoeverIsConnected) {
  std::optional<HttpServer> server(std::in_place, "127.0.0.1", 0, echo);
  const Fd half = connect_to_port(server->port());
  say(half, "GET /x HT");
  const auto begin = Clock::now();
  server.reset();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
}

TEST(HttpServer, ClosesAConnectionThatDribbles) {
  const HttpServer server("127.0.0.1", 0, echo);
  const Fd slow = connect_to_port(server.port());
  const auto begin = Clock::now();
  while (Clock::now() - begin < std::chrono::seconds(30)) {
    if (::send(slow.get(), "G", 1, MSG_NOSIGNAL) < 0) break;
    pollfd polled{slow.get(), POLLIN, 0};
    if (::poll(&polled, 1, 100) > 0) break;
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

TEST(HttpServer, NamesThePortThatIsTaken) {
  const HttpServer first("127.0.0.1", 0, echo);
  try {
    const HttpServer second("127.0.0.1", first.port(), echo);
    ADD_FAILURE() << "two servers at one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(first.port())));
    EXPECT_THAT(error.what(), HasSubstr("--weight-cache-health-port"));
  }
  EXPECT_THROW(HttpServer("no.such.host.invalid", 0, echo), Error);
}

TEST(HttpServer, OfASuccessorTakesThePortWhenItsPredecessorEnds) {
  std::optional<HttpServer> first(std::in_place, "127.0.0.1", 0, echo);
  const int port = first->port();
  const HttpServer second("127.0.0.1", port, echo, true);
  EXPECT_EQ(second.port(), 0);
  first.reset();
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (second.port() == 0 && Clock::now() < deadline) std::this_thread::yield();
  ASSERT_EQ(second.port(), port);
  EXPECT_THAT(ask(port, "GET /x HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, OfASuccessorIsNoneAtAHostThatIsNotHere) {
  EXPECT_THROW(HttpServer("no.such.host.invalid", 0, echo, true), Error);
  EXPECT_THROW(HttpServer("192.0.2.1", 1, echo, true), Error);  // an address of documentation
}

TEST(HttpServer, OfASuccessorSaysThatAnotherHasItsPort) {
  const HttpServer another("127.0.0.1", 0, echo);
  testing::internal::CaptureStderr();
  {
    HttpServer server("127.0.0.1", another.port(), echo, true);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    server.expect_port(std::chrono::milliseconds(100));
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("choose another --weight-cache-health-port"));
  EXPECT_EQ(log.find("warning"), log.rfind("warning")) << "once";
}

TEST(HttpServer, OfASuccessorEndsWithoutEverHavingThePort) {
  const HttpServer first("127.0.0.1", 0, echo);
  const auto begin = Clock::now();
  { const HttpServer second("127.0.0.1", first.port(), echo, true); }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
}

TEST(HttpMessage, EndsItsHeadAtTheFirstEmptyLine) {
  EXPECT_EQ(http_head_end("GET / HTTP/1.1\r\n\r\nrest"), 18U);
  EXPECT_EQ(http_head_end("GET / HTTP/1.1\n\nrest"), 16U);
  EXPECT_EQ(http_head_end("GET / HTTP/1.1\r\n\r"), std::string::npos);
  EXPECT_EQ(http_head_end(""), std::string::npos);
}

}  // namespace
}  // namespace preload
