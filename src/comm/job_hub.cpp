// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/job_channel.hpp"
#include "comm/job_message.hpp"
#include "comm/tcp.hpp"
#include "serve/socket_dir.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Type = JobMessage::Type;

constexpr std::size_t kMaxStrangers = 64;  // on top of the ranks still to come
constexpr milliseconds kTellOthers{1000};  // before a failing rank is let go
constexpr milliseconds kGoodbyesAfterStop{5000};
constexpr milliseconds kConcurrentByes{300};  // ranks that are stopped together with rank 0

// One accepted connection: a stranger until it has proved itself, a rank afterwards.
struct Peer {
  explicit Peer(Fd socket) : connection(std::move(socket)) {}
  JobConnection connection;
  int rank = -1;
  std::string nonce;  // our challenge
  Clock::time_point accepted, heard;
  bool bound = false;
  bool left = false;  // said BYE
  bool gone = false;  // to be erased
  std::uint64_t bytes = 0, total_bytes = 0;

  bool known() const { return rank >= 0; }
};

// A thousand ranks need a thousand descriptors: most soft limits are below that.
void raise_descriptor_limit(int world) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(world) + kMaxStrangers + 256;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

JobMessage failed_message(const JobFailure& failure, Type type) {
  JobMessage message;
  message.type = type;
  message.rank = failure.rank;
  message.status = failure.status;
  message.text = failure.text;
  message.lost = failure.lost;
  return message;
}

}  // namespace

struct JobHub::State {
  State(int world_size, JobTimings the_timings);
  ~State();

  void run();
  milliseconds pause(Clock::time_point now) const;
  void accept_strangers(Clock::time_point now);
  void read_from(Peer& peer, Clock::time_point now);
  void greet(Peer& peer, const JobMessage& hello);
  void handle(Peer& peer, const JobMessage& message);
  void lose(Peer& peer, const std::string& why);
  void declare(const JobFailure& failure);
  void expire(Clock::time_point now);
  void beat(Clock::time_point now);
  void release_failing(Clock::time_point now);
  void flush_all();
  void publish_progress();
  bool finished(Clock::time_point now);
  Peer* find(int rank);
  bool all_sent() const;

  const int world;
  const JobTimings timings;
  HubAddress address;
  Fd listener, wake;
  std::list<Peer> peers;
  std::optional<JobFailure> failure;
  std::vector<int> failing;  // ranks that wait for an ACK of their report
  Clock::time_point failing_since{}, next_beat{}, last_turn{}, closing_since{}, accept_again{};
  bool ready = false, stopped = false, goodbye = false, closing = false;

  mutable std::mutex mutex;  // of what follows
  bool close_requested = false;
  JobProgress progress;
  std::thread thread;  // last: it uses all of the above
};

JobHub::State::State(int world_size, JobTimings the_timings)
    : world(world_size), timings(the_timings) {
  raise_descriptor_limit(world);
  TcpListener tcp = listen_tcp();
  listener = std::move(tcp.socket);
  wake = Fd(static_cast<int>(check_sys(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")));
  address = {host_addresses(), current_boot_id(), tcp.port, random_hex(32)};
  thread = std::thread([this] { run(); });
}

JobHub::State::~State() {
  {
    const std::lock_guard lock(mutex);
    close_requested = true;
  }
  eventfd_write(wake.get(), 1);
  thread.join();
}

Peer* JobHub::State::find(int rank) {
  for (Peer& peer : peers) {
    if (peer.rank == rank && !peer.gone) return &peer;
  }
  return nullptr;
}

void JobHub::State::run() {
  last_turn = next_beat = Clock::now();
  std::vector<pollfd> polled;
  while (!finished(Clock::now())) {
    polled.clear();
    polled.push_back({wake.get(), POLLIN, 0});
    polled.push_back({Clock::now() < accept_again ? -1 : listener.get(), POLLIN, 0});
    for (Peer& peer : peers) {
      const int events = POLLIN | (peer.connection.wants_write() ? POLLOUT : 0);
      polled.push_back({peer.connection.fd(), static_cast<short>(events), 0});
    }
    poll(polled.data(), polled.size(), static_cast<int>(pause(Clock::now()).count()));

    const auto now = Clock::now();
    eventfd_t ignored = 0;
    eventfd_read(wake.get(), &ignored);
    // A job that was suspended as a whole (SIGSTOP, scontrol suspend) comes back to old clocks.
    if (now - last_turn > timings.lost / 2) {
      for (Peer& peer : peers) peer.heard = now;
    }
    last_turn = now;
    std::size_t i = 2;
    for (Peer& peer : peers) {
      if ((polled[i++].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(peer, now);
    }
    if ((polled[1].revents & POLLIN) != 0) accept_strangers(now);
    expire(now);
    beat(now);
    flush_all();
    release_failing(now);
    peers.remove_if([](const Peer& peer) { return peer.gone; });
    publish_progress();
  }
}

milliseconds JobHub::State::pause(Clock::time_point now) const {
  auto until = std::min(next_beat, now + timings.lost / 4);
  for (const Peer& peer : peers) {
    if (!peer.known()) until = std::min(until, peer.accepted + timings.authentication);
  }
  if (!failing.empty() || closing) until = std::min(until, now + milliseconds(20));
  if (accept_again > now) until = std::min(until, accept_again);
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(until - now));
}

// Strangers are bounded: when there are too many, the one that has waited longest goes, so that a
// flood of silent connections cannot keep a rank out.
void JobHub::State::accept_strangers(Clock::time_point now) {
  for (int i = 0; i < 64; ++i) {
    Fd socket = accept_tcp(listener.get());
    if (!socket) {
      // Out of descriptors: the listener stays readable, so it is left alone for a while.
      if (errno == EMFILE || errno == ENFILE) accept_again = now + milliseconds(100);
      return;
    }
    const std::size_t known = static_cast<std::size_t>(
        std::count_if(peers.begin(), peers.end(), [](const Peer& p) { return p.known(); }));
    const std::size_t to_come = static_cast<std::size_t>(world) -
                                std::min<std::size_t>(known, static_cast<std::size_t>(world));
    std::size_t strangers = peers.size() - known;
    for (Peer& peer : peers) {
      if (strangers < kMaxStrangers + to_come) break;
      if (peer.known() || peer.gone) continue;
      peer.gone = true;
      --strangers;
    }
    peers.remove_if([](const Peer& peer) { return peer.gone && !peer.known(); });
    Peer& peer = peers.emplace_back(std::move(socket));
    peer.accepted = peer.heard = now;
    peer.nonce = random_hex(16);
    JobMessage challenge;
    challenge.type = Type::kChallenge;
    challenge.nonce = peer.nonce;
    peer.connection.queue(challenge);
  }
}

void JobHub::State::read_from(Peer& peer, Clock::time_point now) {
  if (peer.gone) return;
  std::vector<JobMessage> messages;
  const bool open =
      peer.connection.read(messages, peer.known() ? kMaxJobMessageBytes : kMaxStrangerBytes);
  for (const JobMessage& message : messages) {
    peer.heard = now;
    if (peer.gone) break;
    if (peer.known()) {
      handle(peer, message);
    } else {
      greet(peer, message);
    }
  }
  if (!open) lose(peer, "its connection broke without a goodbye");
}

void JobHub::State::greet(Peer& peer, const JobMessage& hello) {
  const bool welcome = hello.type == Type::kHello && hello.rank >= 0 && hello.rank < world &&
                       find(hello.rank) == nullptr &&
                       same_proof(hello.proof, make_proof(address.secret_hex, Prover::kRank,
                                                          peer.nonce, hello.nonce, hello.rank));
  if (!welcome) {
    peer.gone = true;
    return;
  }
  peer.rank = hello.rank;
  JobMessage reply;
  reply.type = Type::kWelcome;
  reply.proof = make_proof(address.secret_hex, Prover::kHub, peer.nonce, hello.nonce, hello.rank);
  peer.connection.queue(reply);
  if (failure) peer.connection.queue(failed_message(*failure, Type::kFailed));
}

void JobHub::State::handle(Peer& peer, const JobMessage& message) {
  JobMessage reply;
  switch (message.type) {
    case Type::kHeartbeat:
      peer.bytes = message.bytes;
      peer.total_bytes = message.total_bytes;
      return;
    case Type::kBound: {
      peer.bound = true;
      const auto bound = std::count_if(peers.begin(), peers.end(), [](const Peer& p) {
        return p.known() && p.bound && !p.gone;
      });
      if (ready || failure || bound != world) return;
      ready = true;
      reply.type = Type::kReady;
      for (Peer& other : peers) {
        if (other.known()) other.connection.queue(reply);
      }
      return;
    }
    case Type::kFailed:
      declare({peer.rank, message.status, message.text});
      if (failing.empty()) failing_since = Clock::now();
      failing.push_back(peer.rank);
      return;
    case Type::kStop:
      if (stopped || failure) return;
      stopped = true;
      reply.type = Type::kStop;
      for (Peer& other : peers) {
        if (other.known()) other.connection.queue(reply);
      }
      return;
    case Type::kBye:
      if (!ready && !stopped) {
        declare({peer.rank, exit_status(Errc::kUnexpectedEnd),
                 fmt::format("rank {} ended before the job was ready, unasked", peer.rank)});
      }
      peer.left = true;
      reply.type = Type::kAck;
      peer.connection.queue(reply);
      return;
    default:
      lose(peer, "it broke the job channel's protocol");
  }
}

void JobHub::State::lose(Peer& peer, const std::string& why) {
  peer.gone = true;
  if (!peer.known() || peer.left) return;
  declare({peer.rank, exit_status(Errc::kUnexpectedEnd),
           fmt::format("rank {} was lost: {}", peer.rank, why), true});
}

// The first failure is the job's.
void JobHub::State::declare(const JobFailure& first) {
  if (failure) return;
  failure = first;
  const JobMessage message = failed_message(first, Type::kFailed);
  for (Peer& peer : peers) {
    if (peer.known() && !peer.gone && peer.rank != first.rank) peer.connection.queue(message);
  }
}

void JobHub::State::expire(Clock::time_point now) {
  for (Peer& peer : peers) {
    if (peer.gone) continue;
    if (!peer.known()) {
      peer.gone = now - peer.accepted >= timings.authentication;
    } else if (!peer.left && now - peer.heard >= timings.lost) {
      lose(peer, fmt::format("nothing was heard of it for {} ms", timings.lost.count()));
    }
  }
}

void JobHub::State::beat(Clock::time_point now) {
  if (now < next_beat) return;
  next_beat = now + timings.heartbeat;
  for (Peer& peer : peers) {
    if (peer.known() && !peer.left) peer.connection.queue(JobMessage{});
  }
}

void JobHub::State::flush_all() {
  for (Peer& peer : peers) {
    if (!peer.gone && !peer.connection.flush()) {
      lose(peer, "its connection broke without a goodbye");
    }
  }
}

bool JobHub::State::all_sent() const {
  return std::none_of(peers.begin(), peers.end(), [](const Peer& peer) {
    return peer.known() && !peer.gone && peer.connection.wants_write();
  });
}

// A rank that reports a failure may end only when the others know: its end could take the job down
// before they have heard why.
void JobHub::State::release_failing(Clock::time_point now) {
  if (failing.empty() || (!all_sent() && now - failing_since < kTellOthers)) return;
  const JobMessage ack = failed_message(*failure, Type::kAck);
  for (int rank : failing) {
    if (Peer* peer = find(rank)) peer->connection.queue(ack);
  }
  failing.clear();
  flush_all();
}

void JobHub::State::publish_progress() {
  JobProgress sum;
  double slowest = 2;
  for (const Peer& peer : peers) {
    if (!peer.known() || peer.total_bytes == 0) continue;
    sum.bytes += peer.bytes;
    sum.total_bytes += peer.total_bytes;
    const double share = static_cast<double>(peer.bytes) / static_cast<double>(peer.total_bytes);
    if (share >= slowest) continue;
    slowest = share;
    sum.slowest_rank = peer.rank;
  }
  const std::lock_guard lock(mutex);
  progress = sum;
}

// Rank 0 leaves. After a failure or a stop of the whole job the others leave too and are waited
// for; else they go on, and are told that nobody watches over them any more.
bool JobHub::State::finished(Clock::time_point now) {
  {
    const std::lock_guard lock(mutex);
    if (close_requested && !closing) {
      closing = true;
      closing_since = now;
    }
  }
  if (!closing) return false;
  const auto spent = now - closing_since;
  if (failure || goodbye) return all_sent() || spent >= kTellOthers;
  const bool all_left = std::all_of(peers.begin(), peers.end(),
                                    [](const Peer& peer) { return !peer.known() || peer.left; });
  if (all_left) return all_sent() || spent >= kTellOthers;
  if (spent < (stopped ? kGoodbyesAfterStop : kConcurrentByes)) return false;
  goodbye = true;
  JobMessage message;
  message.type = Type::kGoodbye;
  message.log = true;  // to the lowest rank alone
  std::vector<Peer*> staying;
  for (Peer& peer : peers) {
    if (peer.known() && !peer.left) staying.push_back(&peer);
  }
  std::sort(staying.begin(), staying.end(),
            [](const Peer* a, const Peer* b) { return a->rank < b->rank; });
  for (Peer* peer : staying) {
    peer->connection.queue(message);
    message.log = false;
  }
  closing_since = now;
  flush_all();
  return all_sent();
}

JobHub::JobHub(int world, JobTimings timings) : state_(std::make_unique<State>(world, timings)) {}
JobHub::~JobHub() = default;

const HubAddress& JobHub::address() const noexcept { return state_->address; }

JobProgress JobHub::progress() const {
  const std::lock_guard lock(state_->mutex);
  return state_->progress;
}

}  // namespace preload
