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
#include <span>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/hub_door.hpp"
#include "comm/job_channel.hpp"
#include "comm/job_message.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Type = JobMessage::Type;

constexpr rlim_t kOtherDescriptors = 512;  // files, slabs, clients, strangers
constexpr milliseconds kTellOthers{1000};  // before a failing rank is let go
constexpr milliseconds kGoodbyesAfterStop{5000};
constexpr milliseconds kPollGoodbyes{20};
constexpr milliseconds kConcurrentByes{300};  // ranks that are stopped together with rank 0

// A rank that is connected.
struct Peer {
  JobConnection connection;
  int rank = -1;
  Clock::time_point heard;
  bool bound = false;
  std::optional<int> warm{};  // its warm-up is over; 1: in vain
  bool done = false;
  bool left = false;    // said BYE
  bool gone = false;    // to be erased
  bool missed = false;  // its silence was said
  RankProgress progress{};
};

// A thousand ranks need a thousand descriptors: most soft limits are below that.
void raise_descriptor_limit(int world) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(world) + kOtherDescriptors;
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
  State(int world_size, std::function<void(const JobFailure&)> on_failure, JobTimings the_timings);
  ~State();

  void run();
  milliseconds pause(Clock::time_point now) const;
  void welcome(Arrival arrival, Clock::time_point now);
  void read_from(Peer& peer, Clock::time_point now);
  void handle(Peer& peer, const JobMessage& message);
  void tell_all(Type type, int status = 0);
  void lose(Peer& peer, const std::string& why);
  void declare(const JobFailure& first, int told_by);
  void expire(Clock::time_point now);
  void mind_silence(Peer& peer, Clock::time_point now);
  void beat(Clock::time_point now);
  void count_bound();
  void count_warm();
  void release_done();
  void release_failing(Clock::time_point now);
  void flush_all();
  std::vector<RankProgress> rank_progress() const;
  void publish_progress();
  bool finished(Clock::time_point now);
  Peer* find(int rank);
  bool all_sent() const;

  const int world;
  const std::function<void(const JobFailure&)> on_failure;
  const JobTimings timings;
  HubDoor door;
  Fd wake;
  std::list<Peer> peers;
  std::optional<JobFailure> failure;
  std::vector<int> failing;  // ranks that wait for an ACK of their report
  Clock::time_point failing_since{}, next_beat{}, last_turn{}, closing_since{};
  bool ready = false, stopped = false, goodbye = false, closing = false, done_told = false;

  mutable std::mutex mutex;  // of what follows
  bool close_requested = false;
  std::vector<RankProgress> progress;
  std::optional<JobFailure> published_failure;
  bool published_stop = false;
  std::size_t published_staying = 0;  // ranks that are connected and have not said BYE
  std::thread thread;                 // last: it uses all of the above
};

JobHub::State::State(int world_size, std::function<void(const JobFailure&)> failure_callback,
                     JobTimings the_timings)
    : world(world_size),
      on_failure(std::move(failure_callback)),
      timings(the_timings),
      door(world_size, the_timings),
      wake(static_cast<int>(check_sys(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"))) {
  raise_descriptor_limit(world);
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
    for (Peer& peer : peers) {
      const int events = POLLIN | (peer.connection.wants_write() ? POLLOUT : 0);
      polled.push_back({peer.connection.fd(), static_cast<short>(events), 0});
    }
    const std::size_t at_door = polled.size();
    door.append_polled(polled);
    poll(polled.data(), polled.size(), static_cast<int>(pause(Clock::now()).count()));

    const auto now = Clock::now();
    eventfd_t ignored = 0;
    eventfd_read(wake.get(), &ignored);
    // A job that was suspended as a whole (SIGSTOP, scontrol suspend) comes back to old clocks.
    if (now - last_turn > timings.lost / 2) {
      for (Peer& peer : peers) peer.heard = now;
    }
    last_turn = now;
    std::size_t i = 1;
    for (Peer& peer : peers) {
      if ((polled[i++].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(peer, now);
    }
    auto arrivals = door.turn(std::span(polled).subspan(at_door), now,
                              [this](int rank) { return find(rank) != nullptr; });
    for (Arrival& arrival : arrivals) welcome(std::move(arrival), now);
    expire(now);
    beat(now);
    release_done();
    flush_all();
    release_failing(now);
    peers.remove_if([](const Peer& peer) { return peer.gone; });
    publish_progress();
  }
}

milliseconds JobHub::State::pause(Clock::time_point now) const {
  auto until =
      std::min({next_beat, Clock::time_point(now + timings.lost / 4), door.next_deadline()});
  if (!failing.empty() || closing) until = std::min(until, now + milliseconds(20));
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(until - now));
}

void JobHub::State::welcome(Arrival arrival, Clock::time_point now) {
  Peer& peer = peers.emplace_back(Peer{std::move(arrival.connection), arrival.rank, now});
  peer.progress.rank = peer.rank;
  if (failure) peer.connection.queue(failed_message(*failure, Type::kFailed));
}

void JobHub::State::read_from(Peer& peer, Clock::time_point now) {
  if (peer.gone) return;
  std::vector<JobMessage> messages;
  const bool open = peer.connection.read(messages, kMaxJobMessageBytes);
  for (const JobMessage& message : messages) {
    if (peer.gone) return;
    peer.heard = now;
    handle(peer, message);
  }
  if (!open) lose(peer, "its connection broke without a goodbye");
}

void JobHub::State::handle(Peer& peer, const JobMessage& message) {
  JobMessage reply;
  switch (message.type) {
    case Type::kHeartbeat:
      peer.progress = {peer.rank, message.node, message.bytes, message.total_bytes,
                       message.bytes_per_s};
      return;
    case Type::kBound:
      peer.bound = true;
      count_bound();
      return;
    case Type::kWarm:
      peer.warm = message.status;
      count_warm();
      return;
    case Type::kFailed:
      declare({message.rank >= 0 ? message.rank : peer.rank, message.status, message.text},
              peer.rank);
      if (failing.empty()) failing_since = Clock::now();
      failing.push_back(peer.rank);
      return;
    case Type::kStop:
      if (stopped || failure) return;
      stopped = true;
      tell_all(Type::kStop);
      return;
    case Type::kDone:
      peer.done = true;
      return;
    case Type::kBye:
      if (!ready && !stopped) {
        declare({peer.rank, exit_status(Errc::kUnexpectedEnd),
                 fmt::format("rank {} ended before the job was ready, unasked", peer.rank)},
                peer.rank);
      }
      peer.left = true;
      reply.type = Type::kAck;
      peer.connection.queue(reply);
      return;
    default:
      lose(peer, "it broke the job channel's protocol");
  }
}

void JobHub::State::tell_all(Type type, int status) {
  JobMessage message;
  message.type = type;
  message.status = status;
  for (Peer& peer : peers) peer.connection.queue(message);
}

void JobHub::State::count_bound() {
  const auto bound = std::ranges::count_if(peers, [](const Peer& p) { return p.bound && !p.gone; });
  if (ready || failure || bound != world) return;
  ready = true;
  tell_all(Type::kReady);
}

void JobHub::State::count_warm() {
  int warm = 0;
  int failed = 0;
  for (const Peer& peer : peers) {
    if (peer.gone || !peer.warm) continue;
    ++warm;
    failed += *peer.warm == 0 ? 0 : 1;
  }
  if (!failure && warm == world) tell_all(Type::kWarm, failed);
}

void JobHub::State::lose(Peer& peer, const std::string& why) {
  peer.gone = true;
  if (peer.left) return;
  declare({peer.rank, exit_status(Errc::kUnexpectedEnd),
           fmt::format("rank {} was lost: {}", peer.rank, why), true},
          peer.rank);
}

// The first failure is the job's.
void JobHub::State::declare(const JobFailure& first, int told_by) {
  if (failure) return;
  failure = first;
  on_failure(first);
  const JobMessage message = failed_message(first, Type::kFailed);
  for (Peer& peer : peers) {
    if (!peer.gone && peer.rank != told_by) peer.connection.queue(message);
  }
}

void JobHub::State::expire(Clock::time_point now) {
  const milliseconds limit = ready && !stopped ? timings.lost_when_ready : timings.lost;
  for (Peer& peer : peers) {
    if (peer.gone || peer.left) continue;
    if (now - peer.heard >= limit) {
      lose(peer, fmt::format("nothing was heard of it for {} ms", limit.count()));
    } else {
      mind_silence(peer, now);
    }
  }
}

// A rank that hangs in a READY job may come back: somebody should know meanwhile.
void JobHub::State::mind_silence(Peer& peer, Clock::time_point now) {
  const bool silent = now - peer.heard >= timings.lost;
  if (silent == peer.missed) return;
  peer.missed = silent;
  log::warn(silent
                ? fmt::format("nothing was heard of rank {} for {} s: it hangs, or is suspended; "
                              "after {} s the job ends",
                              peer.rank, timings.lost.count() / 1000,
                              timings.lost_when_ready.count() / 1000)
                : fmt::format("rank {} is heard of again", peer.rank));
}

void JobHub::State::beat(Clock::time_point now) {
  if (now < next_beat) return;
  next_beat = now + timings.heartbeat;
  JobMessage message;
  if (const auto last = slowest(rank_progress())) message.slowest_rank = last->rank;
  for (Peer& peer : peers) {
    if (!peer.left) peer.connection.queue(message);
  }
}

void JobHub::State::flush_all() {
  for (Peer& peer : peers) {
    if (!peer.gone && !peer.connection.flush()) {
      lose(peer, "its connection broke without a goodbye");
    }
  }
}

// Ranks that are told to end go together: the first to end may take the others with it.
void JobHub::State::release_done() {
  const auto in_use = [](const Peer& peer) { return !peer.done && !peer.left && !peer.gone; };
  if (done_told || std::ranges::none_of(peers, &Peer::done) || std::ranges::any_of(peers, in_use)) {
    return;
  }
  done_told = true;
  JobMessage message;
  message.type = Type::kDone;
  for (Peer& peer : peers) {
    if (peer.done) peer.connection.queue(message);
  }
}

bool JobHub::State::all_sent() const {
  return std::none_of(peers.begin(), peers.end(),
                      [](const Peer& peer) { return !peer.gone && peer.connection.wants_write(); });
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

std::vector<RankProgress> JobHub::State::rank_progress() const {
  std::vector<RankProgress> ranks;
  ranks.reserve(peers.size());
  for (const Peer& peer : peers) {
    if (!peer.gone) ranks.push_back(peer.progress);
  }
  return ranks;
}

void JobHub::State::publish_progress() {
  std::vector<RankProgress> ranks = rank_progress();
  const std::lock_guard lock(mutex);
  progress = std::move(ranks);
  published_failure = failure;
  published_stop = stopped;
  published_staying = static_cast<std::size_t>(
      std::ranges::count_if(peers, [](const Peer& peer) { return !peer.left && !peer.gone; }));
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
  const bool all_left =
      std::all_of(peers.begin(), peers.end(), [](const Peer& peer) { return peer.left; });
  if (all_left) return all_sent() || spent >= kTellOthers;
  if (spent < (stopped ? kGoodbyesAfterStop : kConcurrentByes)) return false;
  goodbye = true;
  JobMessage message;
  message.type = Type::kGoodbye;
  message.log = true;  // to the lowest rank alone
  std::vector<Peer*> staying;
  for (Peer& peer : peers) {
    if (!peer.left) staying.push_back(&peer);
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

JobHub::JobHub(int world, std::function<void(const JobFailure&)> on_failure, JobTimings timings)
    : state_(std::make_unique<State>(world, std::move(on_failure), timings)) {}
JobHub::~JobHub() = default;

const HubAddress& JobHub::address() const noexcept { return state_->door.address(); }

std::optional<JobFailure> JobHub::await_goodbyes(milliseconds limit) const {
  const auto deadline = Clock::now() + limit;
  while (true) {
    {
      const std::lock_guard lock(state_->mutex);
      if (state_->published_failure) return state_->published_failure;
      if (!state_->published_stop || state_->published_staying == 0) return std::nullopt;
    }
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(kPollGoodbyes);
  }
}

std::vector<RankProgress> JobHub::progress() const {
  const std::lock_guard lock(state_->mutex);
  return state_->progress;
}

}  // namespace preload
