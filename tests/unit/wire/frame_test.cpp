// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "unit/wire/socket_pair.hpp"
#include "wire/frame_reader.hpp"
#include "wire/frame_writer.hpp"

namespace preload::wire {
namespace {

using Bytes = std::array<std::byte, kHeaderBytes>;

// Written from the protocol's text, not by the code under test.
Bytes header_bytes(const char* magic, unsigned version, unsigned type, unsigned long length) {
  Bytes out{};
  std::memcpy(out.data(), magic, 4);
  out[4] = std::byte(version & 0xFF);
  out[5] = std::byte(version >> 8);
  out[6] = std::byte(type & 0xFF);
  out[7] = std::byte(type >> 8);
  for (int i = 0; i < 4; ++i) out[static_cast<std::size_t>(8 + i)] = std::byte(length >> (8 * i));
  return out;
}

Errc decode_error(const Bytes& bytes) {
  try {
    decode_header(bytes);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "the header was accepted";
  return Errc::kInternal;
}

TEST(Frame, HeaderIsMagicVersionTypeAndLengthInLittleEndian) {
  EXPECT_EQ(encode_header(Type::kStop, 0x012345), header_bytes("PRLD", 1, 11, 0x012345));
}

TEST(Frame, DecodesWhatItEncodes) {
  const Header header = decode_header(encode_header(Type::kAttach, kMaxBodyBytes));
  EXPECT_EQ(header.type, Type::kAttach);
  EXPECT_EQ(header.length, 1U << 20);
}

TEST(Frame, RefusesAHeaderThatIsNotOurs) {
  EXPECT_EQ(decode_error(header_bytes("HTTP", 1, 2, 0)), Errc::kProtocol);
  EXPECT_EQ(decode_error(header_bytes("PRLD", 2, 2, 0)), Errc::kProtocol);
  EXPECT_EQ(decode_error(header_bytes("PRLD", 0x0101, 2, 0)), Errc::kProtocol);
  EXPECT_EQ(decode_error(header_bytes("PRLD", 1, 0, 0)), Errc::kProtocol);
  EXPECT_EQ(decode_error(header_bytes("PRLD", 1, 13, 0)), Errc::kProtocol);
}

TEST(Frame, RefusesALengthPastTheLimitBeforeItAllocates) {
  EXPECT_EQ(decode_error(header_bytes("PRLD", 1, 2, (1UL << 20) + 1)), Errc::kProtocol);
  EXPECT_EQ(decode_error(header_bytes("PRLD", 1, 2, 0xFFFFFFFFUL)), Errc::kProtocol);
}

TEST(Frame, RefusesToSendABodyPastTheLimit) {
  EXPECT_THROW(encode_header(Type::kStatus, kMaxBodyBytes + 1), Error);
}

TEST(Frame, CarriesBodyAndDescriptorsAcrossASocket) {
  const SocketPair pair;
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd zero(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  send_frame(pair.a(), Type::kAttach, R"({"x":1})", {null.get(), zero.get()}, 1000);
  const Frame frame = receive_frame(pair.b(), 1000);
  EXPECT_EQ(frame.type, Type::kAttach);
  EXPECT_EQ(frame.body, R"({"x":1})");
  ASSERT_EQ(frame.fds.size(), 2U);
  char byte = 'x';
  EXPECT_EQ(::read(frame.fds[0].get(), &byte, 1), 0);
  EXPECT_EQ(::read(frame.fds[1].get(), &byte, 1), 1);
  EXPECT_EQ(byte, 0);
  EXPECT_NE(::fcntl(frame.fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Frame, CarriesALargeBodyThroughASmallSocketBuffer) {
  const SocketPair pair;
  const std::string body(kMaxBodyBytes, 'b');
  std::thread sender([&] { send_frame(pair.a(), Type::kStatus, body, {}, 5000); });
  const Frame frame = receive_frame(pair.b(), 5000);
  sender.join();
  EXPECT_EQ(frame.body, body);
}

TEST(Frame, KeepsTheDescriptorsOfFollowingFramesApart) {
  const SocketPair pair;
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  send_frame(pair.a(), Type::kStatus, "{}", {}, 1000);
  send_frame(pair.a(), Type::kAttach, "{}", {null.get()}, 1000);
  send_frame(pair.a(), Type::kStop, "{}", {}, 1000);
  EXPECT_TRUE(receive_frame(pair.b(), 1000).fds.empty());
  EXPECT_EQ(receive_frame(pair.b(), 1000).fds.size(), 1U);
  EXPECT_TRUE(receive_frame(pair.b(), 1000).fds.empty());
}

TEST(Frame, SaysThatTheDaemonIsSilentWhenTheTimeIsOver) {
  const SocketPair pair;
  try {
    receive_frame(pair.b(), 20);
    FAIL() << "a frame came from nowhere";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUnavailable);
  }
}

TEST(Frame, SaysThatThePeerClosed) {
  SocketPair pair;
  pair.close_a();
  EXPECT_THROW(receive_frame(pair.b(), 1000), Error);
}

TEST(FrameReader, TakesAFrameByteByByte) {
  const SocketPair pair;
  FrameReader reader;
  std::string bytes(kHeaderBytes, '\0');
  const auto header = encode_header(Type::kHello, 2);
  std::memcpy(bytes.data(), header.data(), header.size());
  bytes += "{}";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(reader.read(pair.b()), FrameReader::Result::kNeedMore);
    ASSERT_EQ(::write(pair.a(), &bytes[i], 1), 1);
  }
  ASSERT_EQ(reader.read(pair.b()), FrameReader::Result::kFrame);
  EXPECT_EQ(reader.take().body, "{}");
  EXPECT_FALSE(reader.mid_frame());
}

TEST(FrameReader, DoesNotAllocateWhatABodyOnlyAnnounces) {
  const SocketPair pair;
  FrameReader reader;
  const auto header = encode_header(Type::kStatus, kMaxBodyBytes);
  ASSERT_EQ(::write(pair.a(), header.data(), header.size()), 12);
  EXPECT_EQ(reader.read(pair.b()), FrameReader::Result::kNeedMore);
  EXPECT_TRUE(reader.mid_frame());
}

TEST(FrameReader, RefusesACloseInTheMiddleOfAFrame) {
  SocketPair pair;
  ASSERT_EQ(::write(pair.a(), "PRLD", 4), 4);
  pair.close_a();
  FrameReader reader;
  EXPECT_THROW(reader.read(pair.b()), Error);
}

TEST(FrameReader, LetsNoMoreDescriptorsInThanAreAllowed) {
  const SocketPair pair;
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::size_t before = open_descriptors();
  send_frame(pair.a(), Type::kAttach, "{}", std::vector<int>(kMaxFds, null.get()), 1000);
  {
    FrameReader reader(1);
    EXPECT_THROW(reader.read(pair.b()), Error);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(FrameReader, RefusesDescriptorsInTheMiddleOfAFrame) {
  const SocketPair pair;
  const Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto header = encode_header(Type::kAttach, 24);
  ASSERT_EQ(::write(pair.a(), header.data(), header.size()), 12);
  FrameReader reader(1);
  ASSERT_EQ(reader.read(pair.b()), FrameReader::Result::kNeedMore);
  const std::size_t before = open_descriptors();
  send_frame(pair.a(), Type::kAttach, "{}", {null.get()}, 1000);  // body bytes with an fd
  {
    FrameReader doomed = std::move(reader);
    EXPECT_THROW(doomed.read(pair.b()), Error);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(FrameWriter, RefusesMoreDescriptorsThanAFrameHolds) {
  FrameWriter writer;
  EXPECT_THROW(writer.push(Type::kAttach, "{}", std::vector<int>(kMaxFds + 1, 0)), Error);
}

}  // namespace
}  // namespace preload::wire
