// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "serve/peer.hpp"
#include "wire/frame_reader.hpp"
#include "wire/frame_writer.hpp"

namespace preload {

// One client's connection: frames in, frames out, and how long it has kept us. Never blocks.
class Session {
 public:
  using Clock = std::chrono::steady_clock;

  // `takes_packages`: messages that carry one may bring their descriptors.
  Session(Fd socket, Peer peer, bool takes_packages = false);

  int fd() const noexcept { return socket_.get(); }
  const Peer& peer() const noexcept { return peer_; }

  enum class Input { kNothing, kFrame, kClosed };
  Input read();  // throws as FrameReader::read does
  wire::Frame take();

  // An answer; its descriptors are spread over as many frames as they need.
  void answer(wire::Type type, std::string_view body, const std::vector<int>& fds = {});
  // The same with descriptors that are not needed here afterwards.
  void answer_owned(wire::Type type, std::string_view body, std::vector<Fd> fds);
  void close_when_sent() noexcept { closing_ = true; }
  // More than a client's connection: it is not dropped to make room.
  void pin() noexcept { pinned_ = true; }
  bool is_pinned() const noexcept { return pinned_; }
  bool is_idle() const noexcept { return !under_way_; }
  Fd take_socket() noexcept { return std::move(socket_); }
  // Writes what the socket takes. False when the session is over.
  bool flush();

  bool has_output() const noexcept { return !writer_.empty(); }
  bool has_fds_to_send() const noexcept { return fds_pending_ && !writer_.empty(); }
  // When the present request or answer has taken too long; nothing while neither is under way.
  std::optional<Clock::time_point> deadline(int timeout_ms) const;

  // Who is dropped first when there are too many: those that never sent anything, then the idle,
  // then half a request, then an answer not taken; the longest waiting first.
  std::pair<int, Clock::time_point> drop_order() const noexcept;

 private:
  void note_progress();

  Fd socket_;
  Peer peer_;
  wire::FrameReader reader_;
  wire::FrameWriter writer_;
  Clock::time_point since_;  // of the present request or answer, else of the last
  bool under_way_ = false;
  bool has_asked_ = false;
  bool closing_ = false;
  bool fds_pending_ = false;
  bool pinned_ = false;
};

}  // namespace preload
