// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

// GCC 13 sees an overflow in fmt's buffer that spdlog's inlined formatters cannot reach.
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "base/error.hpp"

namespace preload::log {
namespace {

// On a terminal a line first erases what a progress line left there.
const char* line_start() {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  return terminal ? "\x1b[K" : "";
}

std::atomic<bool> quiet_info{false};  // ranks above 0 keep info to themselves

std::shared_ptr<spdlog::logger> make_logger(const std::string& identity) {
  auto logger = std::make_shared<spdlog::logger>("preload",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(
      fmt::format("{}%H:%M:%S.%e %l {}{}%v", line_start(), identity, identity.empty() ? "" : " "));
  logger->set_level(spdlog::level::info);
  logger->flush_on(spdlog::level::debug);
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

void debug(std::string_view text) { current().logger->debug("{}", text); }

void info(std::string_view text) {
  if (quiet_info) {
    debug(text);
  } else {
    current().logger->info("{}", text);
  }
}

void warn(std::string_view text) { current().logger->warn("{}", text); }

void error(std::string_view text) { current().logger->error("{}", text); }

}  // namespace preload::log
