// SPDX-License-Identifier: Apache-2.0
#include "serve/session.hpp"

#include <algorithm>

namespace preload {
namespace {

constexpr std::size_t kMaxRequestFds = 1;  // the lease pipe

}  // namespace

Session::Session(Fd socket, Peer peer, bool takes_packages)
    : socket_(std::move(socket)),
      peer_(peer),
      reader_(kMaxRequestFds, takes_packages ? wire::kMaxFds : 0),
      since_(Clock::now()) {}

void Session::note_progress() {
  const bool now_under_way = reader_.mid_frame() || !writer_.empty();
  if (now_under_way != under_way_) since_ = Clock::now();
  under_way_ = now_under_way;
}

Session::Input Session::read() {
  const auto result = reader_.read(socket_.get());
  note_progress();
  switch (result) {
    case wire::FrameReader::Result::kFrame:
      has_asked_ = true;
      return Input::kFrame;
    case wire::FrameReader::Result::kClosed:
      return Input::kClosed;
    case wire::FrameReader::Result::kNeedMore:
      break;
  }
  return Input::kNothing;
}

wire::Frame Session::take() { return reader_.take(); }

void Session::answer(wire::Type type, std::string_view body, const std::vector<int>& fds) {
  std::size_t sent = std::min(fds.size(), wire::kMaxFds);
  writer_.push(type, body, {fds.begin(), fds.begin() + static_cast<std::ptrdiff_t>(sent)});
  while (sent < fds.size()) {
    const std::size_t end = std::min(fds.size(), sent + wire::kMaxFds);
    writer_.push(type, wire::more_fds_body(sent),
                 {fds.begin() + static_cast<std::ptrdiff_t>(sent),
                  fds.begin() + static_cast<std::ptrdiff_t>(end)});
    sent = end;
  }
  fds_pending_ = !fds.empty();
}

void Session::answer_owned(wire::Type type, std::string_view body, std::vector<Fd> fds) {
  writer_.push_owned(type, body, std::move(fds));
}

bool Session::flush() {
  const bool all_sent = writer_.write(socket_.get());
  note_progress();
  return !(all_sent && closing_);
}

std::optional<Session::Clock::time_point> Session::deadline(int timeout_ms) const {
  if (!under_way_) return std::nullopt;
  return since_ + std::chrono::milliseconds(timeout_ms);
}

std::pair<int, Session::Clock::time_point> Session::drop_order() const noexcept {
  int rank = has_asked_ ? 1 : 0;
  if (reader_.mid_frame()) rank = 2;
  if (!writer_.empty()) rank = 3;
  return {rank, since_};
}

}  // namespace preload
