// SPDX-License-Identifier: Apache-2.0
#include "serve/http_message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace preload {
namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
  }
  return "Internal Server Error";
}

// Takes the next line off `text`; lines end with CRLF, or LF alone (RFC 9112, section 2.2).
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::size_t http_head_end(std::string_view text) noexcept {
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) {
    if (text.substr(at + 1).starts_with('\n')) return at + 2;
    if (text.substr(at + 1).starts_with("\r\n")) return at + 3;
  }
  return text.npos;
}

std::optional<HttpHead> parse_http(std::string_view text) {
  const std::string_view line = take_line(text);
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == line.npos || last == first) return std::nullopt;
  if (!line.substr(last + 1).starts_with("HTTP/1.")) return std::nullopt;
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (!target.starts_with('/') || target.find(' ') != target.npos) return std::nullopt;
  const std::size_t question = std::min(target.find('?'), target.size());
  HttpHead head;
  head.method = line.substr(0, first);
  head.request.path = target.substr(0, question);
  head.request.query = target.substr(std::min(question + 1, target.size()));
  while (!text.empty()) {
    const std::string_view header = take_line(text);
    const std::size_t colon = header.find(':');
    if (colon == header.npos || !same_name(header.substr(0, colon), "accept")) continue;
    head.request.accept = trimmed(header.substr(colon + 1));
  }
  return head;
}

std::string http_text(const HttpReply& reply, bool with_body) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "{}Connection: close\r\n\r\n",
      reply.status, reason_of(reply.status), reply.type, reply.body.size(),
      reply.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (with_body) text += reply.body;
  return text;
}

}  // namespace preload
