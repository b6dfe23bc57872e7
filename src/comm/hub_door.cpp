// SPDX-License-Identifier: Apache-2.0
#include "comm/hub_door.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/tcp.hpp"
#include "serve/socket_dir.hpp"

namespace preload {
namespace {

constexpr std::size_t kMaxStrangers = 64;  // besides the ranks that are still to come
constexpr int kAcceptsPerTurn = 64;
constexpr auto kWithoutDescriptors = std::chrono::milliseconds(100);

}  // namespace

HubDoor::HubDoor(int world, const JobTimings& timings) : world_(world), timings_(timings) {
  TcpListener tcp = listen_tcp();
  listener_ = std::move(tcp.socket);
  address_ = {host_addresses(), current_boot_id(), tcp.port, random_hex(32)};
}

void HubDoor::append_polled(std::vector<pollfd>& polled) const {
  polled.push_back({Clock::now() < accept_again_ ? -1 : listener_.get(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) {
    polled.push_back({stranger.connection.fd(), POLLIN, 0});
  }
}

std::vector<Arrival> HubDoor::turn(std::span<const pollfd> polled, Clock::time_point now,
                                   const std::function<bool(int)>& is_in) {
  std::vector<Arrival> arrivals;
  std::size_t i = 1;
  for (Stranger& stranger : strangers_) {
    const bool readable = (polled[i++].revents & (POLLIN | POLLHUP | POLLERR)) != 0;
    const int rank = readable ? hear(stranger, is_in) : -1;
    if (rank >= 0) {
      arrivals.push_back({std::move(stranger.connection), rank});
      stranger.gone = true;
    } else if (now - stranger.accepted >= timings_.authentication) {
      stranger.gone = true;
    }
  }
  strangers_.remove_if([](const Stranger& stranger) { return stranger.gone; });
  ranks_in_ += arrivals.size();
  const auto world = static_cast<std::size_t>(world_);
  const std::size_t to_come = world - std::min(ranks_in_, world);
  if ((polled[0].revents & POLLIN) != 0) accept_all(now, kMaxStrangers + to_come);
  return arrivals;
}

// When there are too many, the one that has waited longest goes, so that a flood of silent
// connections cannot keep a rank out.
void HubDoor::accept_all(Clock::time_point now, std::size_t limit) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    Fd socket = accept_tcp(listener_.get());
    if (!socket) {
      // The listener stays readable meanwhile: looking away spares a busy loop.
      if (errno == EMFILE || errno == ENFILE) accept_again_ = now + kWithoutDescriptors;
      return;
    }
    if (strangers_.size() >= limit) strangers_.pop_front();
    Stranger& stranger =
        strangers_.emplace_back(Stranger{JobConnection(std::move(socket)), random_hex(16), now});
    JobMessage challenge;
    challenge.type = JobMessage::Type::kChallenge;
    challenge.nonce = stranger.nonce;
    stranger.connection.queue(challenge);
    stranger.gone = !stranger.connection.flush();
  }
}

int HubDoor::hear(Stranger& stranger, const std::function<bool(int)>& is_in) const {
  std::vector<JobMessage> messages;
  const bool open = stranger.connection.read(messages, kMaxStrangerBytes);
  if (open && messages.empty()) return -1;
  stranger.gone = true;
  if (!open || messages.size() != 1) return -1;
  const JobMessage& hello = messages.front();
  const bool welcome = hello.type == JobMessage::Type::kHello && hello.rank >= 0 &&
                       hello.rank < world_ && !is_in(hello.rank) &&
                       same_proof(hello.proof, make_proof(address_.secret_hex, Prover::kRank,
                                                          stranger.nonce, hello.nonce, hello.rank));
  if (!welcome) return -1;
  JobMessage reply;
  reply.type = JobMessage::Type::kWelcome;
  reply.proof =
      make_proof(address_.secret_hex, Prover::kHub, stranger.nonce, hello.nonce, hello.rank);
  stranger.connection.queue(reply);
  return hello.rank;
}

HubDoor::Clock::time_point HubDoor::next_deadline() const {
  auto next = Clock::time_point::max();
  if (!strangers_.empty()) next = strangers_.front().accepted + timings_.authentication;
  if (accept_again_ > Clock::now()) next = std::min(next, accept_again_);
  return next;
}

}  // namespace preload
