// SPDX-License-Identifier: Apache-2.0
#include "run/progress_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

#include "base/log.hpp"
#include "base/prompt_write.hpp"

namespace preload::run {
namespace {

constexpr auto kBetweenLogLines = std::chrono::seconds(10);

// A line that wraps could not be redrawn. 0: not known.
std::size_t columns(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

ProgressLine::ProgressLine(int fd) : fd_(fd), terminal_(isatty(fd) == 1) {}

// Of no consequence when it fails.
void ProgressLine::put(std::string_view text) const {
  write_promptly(fd_, text, std::chrono::milliseconds(0));
}

// The cursor stays at the line's begin, so that a log line overwrites it (see base/log.cpp).
void ProgressLine::show(std::string_view text, Clock::time_point now) {
  if (terminal_) {
    const std::size_t room = columns(fd_);
    if (room > 1) text = text.substr(0, room - 1);
    put(fmt::format("\r{}\x1b[K\r", text));
    shown_ = true;
    return;
  }
  if (next_log_ == Clock::time_point{}) next_log_ = now + kBetweenLogLines;
  if (now < next_log_) return;
  next_log_ = now + kBetweenLogLines;
  log::info(text);
}

void ProgressLine::end() {
  if (std::exchange(shown_, false)) put("\r\x1b[K");
}

}  // namespace preload::run
