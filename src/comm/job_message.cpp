// SPDX-License-Identifier: Apache-2.0
#include "comm/job_message.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace preload {
namespace {

using Json = nlohmann::json;
using Type = JobMessage::Type;

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kMaxTextBytes = 16 << 10;
constexpr std::array<std::pair<Type, const char*>, 13> kNames = {{
    {Type::kChallenge, "CHALLENGE"},
    {Type::kHello, "HELLO"},
    {Type::kWelcome, "WELCOME"},
    {Type::kBound, "BOUND"},
    {Type::kStop, "STOP"},
    {Type::kBye, "BYE"},
    {Type::kReady, "READY"},
    {Type::kAck, "ACK"},
    {Type::kGoodbye, "GOODBYE"},
    {Type::kFailed, "FAILED"},
    {Type::kHeartbeat, "HEARTBEAT"},
    {Type::kDone, "DONE"},
    {Type::kWarm, "WARM"},
}};

std::string to_hex(const unsigned char* bytes, std::size_t size) {
  std::string hex;
  for (std::size_t i = 0; i < size; ++i)
    fmt::format_to(std::back_inserter(hex), "{:02x}", bytes[i]);
  return hex;
}

}  // namespace

std::string encode_frame(const JobMessage& message) {
  Json json = Json::object();
  for (const auto& [type, name] : kNames) {
    if (type == message.type) json["type"] = name;
  }
  if (message.rank >= 0) json["rank"] = message.rank;
  if (message.status != 0) json["status"] = message.status;
  if (message.lost) json["lost"] = true;
  if (message.log) json["log"] = true;
  if (!message.text.empty()) json["text"] = message.text.substr(0, kMaxTextBytes);
  if (!message.nonce.empty()) json["nonce"] = message.nonce;
  if (!message.proof.empty()) json["proof"] = message.proof;
  if (message.total_bytes != 0) {
    json["bytes"] = message.bytes;
    json["total_bytes"] = message.total_bytes;
    json["bytes_per_s"] = message.bytes_per_s;
    json["node"] = message.node;
  }
  if (message.slowest_rank >= 0) json["slowest_rank"] = message.slowest_rank;
  // A text may hold a file name of any bytes, or have been cut within a character.
  const std::string body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string frame(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    frame[i] = static_cast<char>((body.size() >> (8 * i)) & 0xff);
  }
  return frame + body;
}

std::optional<JobMessage> decode_body(std::string_view body) {
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    JobMessage message;
    const std::string named = json.at("type").get<std::string>();
    bool known = false;
    for (const auto& [type, name] : kNames) {
      if (named != name) continue;
      message.type = type;
      known = true;
    }
    if (!known) return std::nullopt;
    message.rank = json.value("rank", -1);
    message.status = json.value("status", 0);
    message.lost = json.value("lost", false);
    message.log = json.value("log", false);
    message.text = json.value("text", std::string());
    message.nonce = json.value("nonce", std::string());
    message.proof = json.value("proof", std::string());
    message.bytes = json.value("bytes", std::uint64_t{0});
    message.total_bytes = json.value("total_bytes", std::uint64_t{0});
    message.bytes_per_s = json.value("bytes_per_s", std::uint64_t{0});
    message.node = json.value("node", 0);
    message.slowest_rank = json.value("slowest_rank", -1);
    return message;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string random_hex(std::size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  if (RAND_bytes(raw.data(), static_cast<int>(bytes)) != 1) {
    throw Error(Errc::kInternal, "the system has no random bytes to give");
  }
  return to_hex(raw.data(), raw.size());
}

std::string make_proof(const std::string& secret_hex, Prover prover, const std::string& hub_nonce,
                       const std::string& rank_nonce, int rank) {
  const std::string text =
      fmt::format("preload job channel 1|{}|{}|{}|{}", prover == Prover::kHub ? "hub" : "rank",
                  hub_nonce, rank_nonce, rank);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), secret_hex.data(), static_cast<int>(secret_hex.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(),
           &length) == nullptr) {
    throw Error(Errc::kInternal, "OpenSSL refused an HMAC-SHA256");
  }
  return to_hex(digest.data(), length);
}

bool same_proof(const std::string& a, const std::string& b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace preload
