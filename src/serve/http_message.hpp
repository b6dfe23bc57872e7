// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/http_server.hpp"

namespace preload {

inline constexpr std::size_t kMaxHttpRequestBytes = 8192;

// One request's head, as far as it is needed here.
struct HttpHead {
  std::string method;
  HttpRequest request;
};
// `text` up to and with the empty line. Nothing when it is not HTTP/1.
std::optional<HttpHead> parse_http(std::string_view text);
// Where the head ends in what has come so far; npos while it is not complete.
std::size_t http_head_end(std::string_view text) noexcept;

// The bytes of an answer; without the body for HEAD.
std::string http_text(const HttpReply& reply, bool with_body);

}  // namespace preload
