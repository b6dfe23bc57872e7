// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

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

constexpr milliseconds kConnectAttempt{2000};
constexpr milliseconds kBetweenRounds{200};
constexpr milliseconds kHubAnswers{3000};  // to FAILED and BYE
constexpr milliseconds kCancelPoll{50};
constexpr milliseconds kLastWords{1000};  // to get unsent messages out

JobMessage of_type(Type type) {
  JobMessage message;
  message.type = type;
  return message;
}

// A connection that is in, and what the hub said right after the welcome.
struct Admission {
  JobConnection connection;
  std::vector<JobMessage> early;
};

// The next message of the handshake, within `timeout`; what came with it stays in `messages`.
JobMessage await(JobConnection& connection, Type type, milliseconds timeout,
                 std::vector<JobMessage>& messages) {
  const auto deadline = Clock::now() + timeout;
  bool open = true;
  while (messages.empty() && open) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd polled{connection.fd(), POLLIN, 0};
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) == 0) {
      throw Error(Errc::kLauncher, "no answer");
    }
    open = connection.read(messages, kMaxJobMessageBytes);
  }
  if (messages.empty() || messages[0].type != type) {
    throw Error(Errc::kLauncher, "what listens there is not this job's channel, or refused us");
  }
  JobMessage first = std::move(messages.front());
  messages.erase(messages.begin());
  return first;
}

Admission shake_hands(const std::string& host, const HubAddress& address, int rank,
                      const JobTimings& timings) {
  Admission admission{JobConnection(connect_tcp(host, address.port, kConnectAttempt)), {}};
  JobConnection& connection = admission.connection;
  const JobMessage challenge =
      await(connection, Type::kChallenge, timings.authentication, admission.early);
  JobMessage hello = of_type(Type::kHello);
  hello.rank = rank;
  hello.nonce = random_hex(16);
  hello.proof = make_proof(address.secret_hex, Prover::kRank, challenge.nonce, hello.nonce, rank);
  connection.queue(hello);
  if (!connection.flush() || connection.wants_write()) {
    throw Error(Errc::kLauncher, "the connection broke");
  }
  const JobMessage welcome =
      await(connection, Type::kWelcome, timings.authentication, admission.early);
  if (!same_proof(welcome.proof, make_proof(address.secret_hex, Prover::kHub, challenge.nonce,
                                            hello.nonce, rank))) {
    throw Error(Errc::kLauncher, "what listens there does not know this job's secret");
  }
  return admission;
}

Admission connect_hub(const HubAddress& address, int rank, const JobTimings& timings) {
  std::vector<std::string> hosts = address.hosts;
  if (!address.boot_id.empty() && address.boot_id == current_boot_id()) {
    hosts.insert(hosts.begin(), {"127.0.0.1", "::1"});
  }
  const auto deadline = Clock::now() + timings.connect;
  std::string tried;
  do {
    tried.clear();
    for (const std::string& host : hosts) {
      try {
        return shake_hands(host, address, rank, timings);
      } catch (const Error& error) {
        tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", host, error.what());
      }
    }
    std::this_thread::sleep_for(kBetweenRounds);
  } while (Clock::now() < deadline);
  throw Error(Errc::kLauncher,
              fmt::format("rank {} cannot reach rank 0's job channel at TCP port {} ({}): let the "
                          "job's hosts reach each other on unprivileged TCP ports",
                          rank, address.port, tried.empty() ? "rank 0 has no address" : tried));
}

}  // namespace

// What the hub says of a lost rank names it already.
std::string describe(const JobFailure& failure) {
  return failure.lost ? failure.text : fmt::format("rank {}: {}", failure.rank, failure.text);
}

struct JobMember::State {
  State(Admission admission, int own_rank, JobEvents the_events, JobTimings the_timings);
  ~State();

  void run();
  bool turn();  // false when the thread is done
  void handle(const JobMessage& message);
  void lose(const std::string& why);
  void post(const JobMessage& message);

  const int rank;
  const JobEvents events;
  const JobTimings timings;
  JobConnection connection;
  std::vector<JobMessage> early;
  Fd wake;
  Clock::time_point heard, next_beat, last_turn, closing_since{};
  bool failure_heard = false;
  bool ready = false;  // and no stop of the whole job since
  std::atomic<int> slowest_rank{-1};

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::vector<JobMessage> outbox;
  std::optional<JobFailure> verdict;  // the job's failure, by FAILED or by the ACK of our report
  RankProgress progress;
  bool reporting = false, leaving = false, let_go = false, closing = false, ended = false;
  bool all_done = false;
  std::optional<int> failed_warm_ups;  // once all are over
  std::thread thread;                  // last: it uses all of the above
};

JobMember::State::State(Admission admission, int own_rank, JobEvents the_events,
                        JobTimings the_timings)
    : rank(own_rank),
      events(std::move(the_events)),
      timings(the_timings),
      connection(std::move(admission.connection)),
      early(std::move(admission.early)),
      wake(static_cast<int>(check_sys(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"))),
      heard(Clock::now()),
      next_beat(heard),
      last_turn(heard) {
  thread = std::thread([this] { run(); });
}

JobMember::State::~State() {
  {
    const std::lock_guard lock(mutex);
    closing = true;
  }
  eventfd_write(wake.get(), 1);
  thread.join();
}

void JobMember::State::post(const JobMessage& message) {
  {
    const std::lock_guard lock(mutex);
    if (ended) return;
    outbox.push_back(message);
  }
  eventfd_write(wake.get(), 1);
}

void JobMember::State::run() {
  for (const JobMessage& message : early) handle(message);
  while (turn()) {
  }
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

bool JobMember::State::turn() {
  pollfd polled[2] = {{wake.get(), POLLIN, 0}, {connection.fd(), POLLIN, 0}};
  if (connection.wants_write()) polled[1].events |= POLLOUT;
  auto pause = std::chrono::ceil<milliseconds>(next_beat - Clock::now());
  poll(polled, 2, static_cast<int>(std::max<std::int64_t>(1, pause.count())));
  const auto now = Clock::now();
  eventfd_t ignored = 0;
  eventfd_read(wake.get(), &ignored);
  if (now - last_turn > timings.lost / 2) heard = now;  // the whole job was suspended
  last_turn = now;

  std::vector<JobMessage> messages;
  const bool open = connection.read(messages, kMaxJobMessageBytes);
  for (const JobMessage& message : messages) {
    heard = now;
    handle(message);
    if (message.type == Type::kGoodbye) return false;
  }
  if (!open) {
    lose("its connection broke without a goodbye");
    return false;
  }
  const milliseconds limit = ready ? timings.lost_when_ready : timings.lost;
  if (now - heard >= limit) {
    lose(fmt::format("nothing was heard of it for {} ms", limit.count()));
    return false;
  }
  bool close = false;
  RankProgress so_far;
  {
    const std::lock_guard lock(mutex);
    for (const JobMessage& message : outbox) connection.queue(message);
    outbox.clear();
    close = closing;
    so_far = progress;
  }
  if (close && closing_since == Clock::time_point{}) closing_since = now;
  if (now >= next_beat) {
    next_beat = now + timings.heartbeat;
    JobMessage beat;
    beat.bytes = so_far.bytes;
    beat.total_bytes = so_far.total_bytes;
    beat.bytes_per_s = so_far.bytes_per_s;
    beat.node = so_far.node;
    connection.queue(beat);
  }
  if (!connection.flush()) {
    lose("its connection broke without a goodbye");
    return false;
  }
  return !close || (connection.wants_write() && now - closing_since < kLastWords);
}

void JobMember::State::handle(const JobMessage& message) {
  switch (message.type) {
    case Type::kHeartbeat:
      slowest_rank = message.slowest_rank;
      return;
    case Type::kReady:
      ready = true;
      events.ready();
      return;
    case Type::kStop:
      ready = false;
      events.stop();
      return;
    case Type::kGoodbye:
      if (message.log) {
        log::warn(
            "rank 0 was stopped by request; the job's other ranks go on without supervision: "
            "from now on a rank that fails ends alone");
      }
      return;
    case Type::kDone: {
      const std::lock_guard lock(mutex);
      all_done = true;
      changed.notify_all();
      return;
    }
    case Type::kWarm: {
      const std::lock_guard lock(mutex);
      failed_warm_ups = message.status;
      changed.notify_all();
      return;
    }
    case Type::kAck: {
      const std::lock_guard lock(mutex);
      if (message.rank >= 0) {
        verdict = JobFailure{message.rank, message.status, message.text, message.lost};
      } else {
        let_go = true;
      }
      changed.notify_all();
      return;
    }
    case Type::kFailed: {
      bool tell = false;
      {
        const std::lock_guard lock(mutex);
        tell = !reporting && !failure_heard;
        failure_heard = true;
        verdict = JobFailure{message.rank, message.status, message.text, message.lost};
        changed.notify_all();
      }
      if (tell) events.failed({message.rank, message.status, message.text, message.lost});
      return;
    }
    default:
      return;  // what a later version may add
  }
}

void JobMember::State::lose(const std::string& why) {
  {
    const std::lock_guard lock(mutex);
    if (reporting || leaving || closing || failure_heard) return;
    failure_heard = true;
  }
  events.failed(
      {0, exit_status(Errc::kUnexpectedEnd), fmt::format("rank 0 was lost: {}", why), true});
}

JobMember::JobMember(const HubAddress& address, int rank, JobEvents events, JobTimings timings)
    : state_(std::make_unique<State>(connect_hub(address, rank, timings), rank, std::move(events),
                                     timings)) {}
JobMember::~JobMember() = default;

void JobMember::set_progress(const RankProgress& progress) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->progress = progress;
}

std::optional<int> JobMember::slowest_rank() const noexcept {
  const int rank = state_->slowest_rank;
  return rank < 0 ? std::nullopt : std::optional(rank);
}

void JobMember::bound() { state_->post(of_type(Type::kBound)); }

std::optional<int> JobMember::await_warm_ups(bool succeeded, const Cancel& cancel,
                                             milliseconds limit) {
  JobMessage message = of_type(Type::kWarm);
  message.status = succeeded ? 0 : 1;
  state_->post(message);
  const auto deadline = Clock::now() + limit;
  std::unique_lock lock(state_->mutex);
  while (!state_->failed_warm_ups && !state_->ended && !cancel.requested() &&
         Clock::now() < deadline) {
    state_->changed.wait_for(lock, kCancelPoll);
  }
  return state_->failed_warm_ups;
}

void JobMember::request_stop() { state_->post(of_type(Type::kStop)); }

std::optional<JobFailure> JobMember::fail(int status, const std::string& text,
                                          std::optional<int> of_rank) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->reporting = true;
  }
  JobMessage message = of_type(Type::kFailed);
  message.rank = of_rank.value_or(state_->rank);
  message.status = status;
  message.text = text;
  state_->post(message);
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kHubAnswers, [this] { return state_->verdict || state_->ended; });
  return state_->verdict;
}

void JobMember::await_others(milliseconds limit) {
  state_->post(of_type(Type::kDone));
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, limit, [this] { return state_->all_done || state_->ended; });
}

void JobMember::bye() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->leaving = true;
  }
  state_->post(of_type(Type::kBye));
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kHubAnswers, [this] { return state_->let_go || state_->ended; });
}

}  // namespace preload
