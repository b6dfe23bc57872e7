// SPDX-License-Identifier: Apache-2.0
#include "serve/health_endpoint.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "serve/metrics.hpp"
#include "wire/json_object.hpp"

namespace preload {
namespace {

// A daemon that hangs must not keep the others' figures from a scraper for longer.
constexpr std::chrono::milliseconds kPatience{1000};

}  // namespace

HttpReply health_reply(const Health& health, const std::string& job, const HttpRequest& request) {
  HttpReply reply;
  reply.status = health.healthy ? 200 : 503;
  if (request.accept.find("application/json") == std::string::npos &&
      request.query != "format=json") {
    reply.body = fmt::format("{}: {}\n", health.state, health.reason);
    return reply;
  }
  reply.type = "application/json";
  reply.body = wire::dump_json({{"healthy", health.healthy},
                                {"state", health.state},
                                {"reason", health.reason},
                                {"job", job},
                                {"ready", health.ready},
                                {"expected", health.expected}}) +
               "\n";
  return reply;
}

HealthEndpoint::HealthEndpoint(const SocketDir& directory, Options options)
    : options_(std::move(options)),
      watch_(directory, options_.job, options_.expected),
      server_(options_.host, options_.port,
              [this](const HttpRequest& request) { return reply(request); }) {}

Health HealthEndpoint::health() const {
  Health health = watch_.health();
  if (const auto why = options_.ending()) {
    health.healthy = false;
    health.state = "ENDING";
    health.reason = *why;
  }
  return health;
}

HttpReply HealthEndpoint::reply(const HttpRequest& request) {
  if (request.path == "/health") return health_reply(health(), options_.job, request);
  if (request.path != "/metrics") return {404, "there is /health and /metrics\n"};
  if (!built_with_metrics()) return {501, kNoMetrics};
  const NodeReport report = watch_.report(kPatience);
  return {200, metrics_text(health(), options_.job, report), kMetricsType};
}

}  // namespace preload
