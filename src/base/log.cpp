// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

// GCC 13 sees an overflow in fmt's buffer that spdlog's inlined formatters cannot reach.
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/prompt_write.hpp"

namespace preload::log {
namespace {

// On a terminal a line first erases what a progress line left there.
const char* line_start() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal ? "\x1b[K" : "";
}

// What does not get out in time is lost, and counted: the log must not stop a rank that serves. An
// error may be the last word of a process and gets more time.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    if (lost_ > 0) {
      const std::string note = fmt::format("preload: {} lines of the log were lost\n", lost_);
      if (!write_promptly(STDERR_FILENO, note, patience(message.level))) {
        ++lost_;
        return;
      }
      lost_ = 0;
    }
    if (!write_promptly(STDERR_FILENO, {formatted.data(), formatted.size()},
                        patience(message.level)))
      ++lost_;
  }
  void flush_() override {}

 private:
  // Once something was lost, lines are not worth waiting for until the reader is back.
  std::chrono::milliseconds patience(spdlog::level::level_enum level) const {
    if (level >= spdlog::level::err) return std::chrono::milliseconds(1000);
    return std::chrono::milliseconds(lost_ > 0 ? 0 : 20);
  }

  std::uint64_t lost_ = 0;
};

std::atomic<bool> quiet_info{false};  // ranks above 0 keep info to themselves

std::shared_ptr<spdlog::logger> make_logger(const std::string& identity) {
  auto logger = std::make_shared<spdlog::logger>("preload", std::make_shared<StderrSink>());
  logger->set_pattern(
      fmt::format("{}%H:%M:%S.%e %l {}{}%v", line_start(), identity, identity.empty() ? "" : " "));
  logger->set_level(spdlog::level::info);
  return logger;
}

struct Current {
  std::shared_ptr<spdlog::logger> logger = make_logger("");
  std::string identity;
};

Current& current() {
  static Current instance;
  return instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace

void set_up(Level level, std::string identity) {
  current().identity = std::move(identity);
  current().logger = make_logger(current().identity);
  current().logger->set_level(to_spdlog(level));
}

void set_rank(int global_rank, std::string_view role) {
  quiet_info = global_rank != 0;
  current().logger->set_pattern(fmt::format(
      "{}%H:%M:%S.%e %l {}{}rank {}{}{}: %v", line_start(), current().identity,
      current().identity.empty() ? "" : " ", global_rank, role.empty() ? "" : " ", role));
}

Level parse_level(std::string_view text) {
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  if (text == "warn" || text == "warning") return Level::kWarn;
  if (text == "error") return Level::kError;
  if (text == "off") return Level::kOff;
  throw Error(Errc::kUsage,
              fmt::format("--log-level '{}' is none of debug, info, warn, error, off", text));
}

void debug(std::string_view text) { current().logger->debug("{}", indented(text)); }

void info(std::string_view text) {
  if (quiet_info) {
    debug(text);
  } else {
    current().logger->info("{}", indented(text));
  }
}

void notice(std::string_view text) { current().logger->info("{}", indented(text)); }

void warn(std::string_view text) { current().logger->warn("{}", indented(text)); }

void error(std::string_view text) { current().logger->error("{}", indented(text)); }

}  // namespace preload::log
