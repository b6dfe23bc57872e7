// SPDX-License-Identifier: Apache-2.0
#include "serve/keeper.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "serve/keeper_link.hpp"
#include "unit/serve/live_server.hpp"
#include "unit/wire/socket_pair.hpp"

namespace preload {
namespace {

using testing::HasSubstr;
using wire::open_descriptors;
using Step = wire::DepositRequest::Step;
constexpr auto kSoon = std::chrono::seconds(20);
constexpr int kTimeoutMs = 20000;

// A keeper on a thread of its own; daemons are this test.
class LiveKeeper {
 public:
  explicit LiveKeeper(KeeperOptions options = {})
      : directory_(temp_.open()), keeper_(std::in_place, directory_, std::move(options)) {
    thread_ = std::thread([this] { status_ = keeper_->run(Fd()); });
  }
  ~LiveKeeper() { stop(); }
  Fd connect() const { return connect_to(directory_, std::string(kKeeperSocket), kTimeoutMs); }
  void stop() {
    if (!thread_.joinable()) return;
    try {
      wire::call_stop(connect().get(), {}, kTimeoutMs);
    } catch (const Error&) {
      // it ended by itself
    }
    thread_.join();
    keeper_.reset();
  }
  int join() {
    thread_.join();
    return status_;
  }
  wire::KeeperStatus status() const {
    return wire::call_keeper_status(connect().get(), kTimeoutMs);
  }
  const SocketDir& directory() const { return directory_; }

 private:
  TempDir temp_;
  SocketDir directory_;
  std::optional<Keeper> keeper_;
  std::thread thread_;
  int status_ = -1;
};

const Endpoint kPlace{"host:0", "", Role::kTarget};

// Takes the place's lock as a daemon does, and deposits on one connection.
class Daemon {
 public:
  explicit Daemon(const LiveKeeper& keeper)
      : lock_(take_lock(keeper.directory(), kPlace)), socket_(keeper.connect()) {}

  wire::DepositReply deposit(const Residency& residency, const LeaseTable* leases = nullptr,
                             const ArtifactStore* artifacts = nullptr) {
    PackageView view;
    view.generations = {&residency};
    view.leases = leases;
    view.artifacts = artifacts;
    std::vector<Fd> fds = pack(view);
    wire::DepositRequest request;
    request.fds = fds.size();
    wire::FrameWriter writer;
    writer.push_owned(wire::Type::kDeposit, wire::to_json(request), std::move(fds));
    while (!writer.write(socket_.get())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const wire::Frame frame = wire::receive_frame(socket_.get(), kTimeoutMs);
    if (frame.type == wire::Type::kError)
      throw wire::PeerError(wire::error_reply_from_json(frame.body));
    return wire::deposit_reply_from_json(frame.body);
  }
  int socket() const { return socket_.get(); }

 private:
  Fd lock_, socket_;
};

Fd ask_about(const LiveKeeper& keeper) {
  Fd socket = keeper.connect();
  wire::call_hello(socket.get(), {{1, "test", "0"}, kPlace.stem()}, kTimeoutMs);
  return socket;
}

wire::DaemonState state_of(const LiveKeeper& keeper) {
  const wire::KeeperStatus status = keeper.status();
  return status.deposits.empty() ? wire::DaemonState::kReleased : status.deposits.front().state;
}

TEST(Keeper, AnswersForADaemonThatIsGone) {
  LiveKeeper keeper;
  const Residency residency = sample_residency();
  std::optional<Daemon> daemon(std::in_place, keeper);
  daemon->deposit(residency);
  EXPECT_NE(state_of(keeper), wire::DaemonState::kOrphaned);
  {
    LeasePipe pipe;
    const Fd socket = ask_about(keeper);
    const auto reply = refusal(
        [&] { wire::call_attach(socket.get(), attach_request(), pipe.read.get(), kTimeoutMs); });
    EXPECT_THAT(reply.message, HasSubstr("its own socket")) << "its daemon lives";
  }
  daemon.reset();

  LeasePipe pipe;
  const Fd socket = ask_about(keeper);
  EXPECT_EQ(wire::call_status(socket.get(), kTimeoutMs).state, wire::DaemonState::kOrphaned);
  EXPECT_EQ(wire::call_describe(socket.get(), kTimeoutMs).key, residency.key);
  const wire::Attached attached =
      wire::call_attach(socket.get(), attach_request(), pipe.read.get(), kTimeoutMs);
  EXPECT_EQ(attached.reply.key, residency.key);
  const Mapping slab = map_fd(attached.slab_fds[0].get(), 4096, false, "slab");
  EXPECT_EQ(static_cast<char>(slab.bytes()[0]), 'a');
}

TEST(Keeper, GivesASuccessorTheWeightsAndLaterTheLeasesThatItDoesNotKnow) {
  LiveKeeper keeper;
  LeasePipe early, late;
  {
    Daemon daemon(keeper);
    LeaseTable leases;
    Lease lease;
    lease.pipe = std::move(early.read);
    lease.pid = 1;
    leases.add(std::move(lease));
    daemon.deposit(sample_residency(), &leases);
  }
  Package package =
      unpack(wire::call_adopt(keeper.connect().get(), {kPlace.stem()}, kTimeoutMs).fds);
  ASSERT_EQ(package.leases.size(), 1U);
  wire::call_attach(ask_about(keeper).get(), attach_request(), late.read.get(), kTimeoutMs);
  late.read.reset();

  Daemon successor(keeper);
  LeaseTable known;
  known.add(std::move(package.leases.front()));
  const wire::DepositReply reply = successor.deposit(package.generations.front(), &known);
  ASSERT_EQ(reply.leases.size(), 1U);
  EXPECT_EQ(reply.leases[0].name, "test client");
  EXPECT_EQ(keeper.status().deposits.at(0).leases.size(), 2U);
  late.write.reset();
  EXPECT_TRUE(eventually([&] { return keeper.status().deposits.at(0).leases.size() == 1; }, kSoon));
}

TEST(Keeper, GivesArtifactsOfADaemonThatIsGoneToClientsAndToItsSuccessor) {
  LiveKeeper keeper;
  std::optional<Daemon> daemon(std::in_place, keeper);
  {
    ArtifactStore artifacts;
    artifacts.put({{"early", 1, "m"}, sealed_memfd("e")});
    artifacts.put({{"old", 1, ""}, sealed_memfd("o")});
    daemon->deposit(sample_residency(), nullptr, &artifacts);
  }
  wire::DepositRequest forget;
  forget.step = Step::kForget;
  forget.keys = {"old", "never there"};
  wire::exchange(daemon->socket(), wire::Type::kDeposit, wire::to_json(forget), {}, kTimeoutMs);
  wire::DepositRequest late;
  late.step = Step::kArtifact;
  late.artifact = {"late", 2, ""};
  wire::exchange(daemon->socket(), wire::Type::kDeposit, wire::to_json(late),
                 {sealed_memfd("la").get()}, kTimeoutMs);
  EXPECT_EQ(refusal([&] { get_artifact(ask_about(keeper).get(), "early"); }).code,
            Errc::kUnavailable)
      << "its daemon lives";
  EXPECT_EQ(refusal([&] { put_artifact(ask_about(keeper).get(), "x", "y"); }).code,
            Errc::kUnavailable);
  daemon.reset();
  EXPECT_EQ(get_artifact(ask_about(keeper).get(), "early"), "e|m");
  EXPECT_EQ(get_artifact(ask_about(keeper).get(), "late"), "la|");
  EXPECT_EQ(get_artifact(ask_about(keeper).get(), "old"), std::nullopt);

  Package package =
      unpack(wire::call_adopt(keeper.connect().get(), {kPlace.stem()}, kTimeoutMs).fds);
  ASSERT_EQ(package.artifacts.size(), 2U);
  ArtifactStore adopted;
  for (Artifact& artifact : package.artifacts) adopted.put(std::move(artifact));
  // While the successor is not there yet, the keeper takes what comes, and passes it on.
  put_artifact(ask_about(keeper).get(), "early", "newer");
  put_artifact(ask_about(keeper).get(), "left", "here");
  Daemon successor(keeper);
  EXPECT_EQ(successor.deposit(package.generations.front(), nullptr, &adopted).artifacts, 2U);
}

TEST(Keeper, TakesAllThatADaemonSentBeforeItDied) {
  LiveKeeper keeper;
  for (int round = 0; round < 5; ++round) {
    std::optional<Daemon> daemon(std::in_place, keeper);
    daemon->deposit(sample_residency());
    LeasePipe pipe;
    wire::FrameWriter writer;
    const auto send = [&](const wire::DepositRequest& request, Fd fd) {
      std::vector<Fd> fds;
      fds.push_back(std::move(fd));
      writer.push_owned(wire::Type::kDeposit, wire::to_json(request), std::move(fds));
    };
    wire::DepositRequest request;
    request.step = Step::kArtifact;
    for (int i = 0; i < 30; ++i) {
      request.artifact = {"k" + std::to_string(i), 1, ""};
      send(request, sealed_memfd("x"));
    }
    request.step = Step::kLease;
    request.lease = {7, "the last", 0};
    send(request, std::move(pipe.read));
    while (!writer.write(daemon->socket()))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    daemon.reset();  // with all answers unread
    const Fd socket = ask_about(keeper);
    EXPECT_EQ(get_artifact(socket.get(), "k29"), "x|");
    EXPECT_EQ(wire::call_status(socket.get(), kTimeoutMs).leases.size(), 1U);
    pipe.write.reset();
    EXPECT_TRUE(eventually([&] { return keeper.status().deposits.at(0).leases.empty(); }, kSoon));
  }
}

TEST(Keeper, KeepsNothingOfADepositThatIsNotWhole) {
  LiveKeeper keeper;
  const std::size_t before = open_descriptors();
  const Residency residency = sample_residency();
  for (int round = 0; round < 50; ++round) {
    const Fd socket = keeper.connect();
    PackageView view;
    view.generations = {&residency};
    std::vector<Fd> fds = pack(view);
    wire::DepositRequest request;
    request.fds = fds.size();
    fds.pop_back();
    wire::FrameWriter writer;
    writer.push_owned(wire::Type::kDeposit, wire::to_json(request), std::move(fds));
    ASSERT_TRUE(writer.write(socket.get()));
    EXPECT_TRUE(keeper.status().deposits.empty());
  }
  EXPECT_TRUE(keeper.status().deposits.empty());
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= before + 4; }, kSoon));
}

TEST(Keeper, RefusesWhatIsNoDepositAndClosesTheConnection) {
  LiveKeeper keeper;
  const auto refused = [&](wire::Type type, std::string_view body, int fds) {
    const Fd socket = keeper.connect();
    std::vector<int> numbers;
    const Fd memfd = sealed_memfd("x");
    for (int i = 0; i < fds; ++i) numbers.push_back(memfd.get());
    wire::send_frame(socket.get(), type, body, numbers, kTimeoutMs);
    const wire::Frame frame = wire::receive_frame(socket.get(), kTimeoutMs);
    EXPECT_EQ(frame.type, wire::Type::kError);
    return wire::error_reply_from_json(frame.body).message;
  };
  using wire::Type;
  EXPECT_THAT(refused(Type::kDeposit, "{}", 0), HasSubstr("step"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"conquer"})", 0), HasSubstr("step"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"package","fds":1})", 1), HasSubstr("papers"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"package","fds":1})", 2), HasSubstr("more"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"package","fds":99999999})", 0), HasSubstr("fds"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"package"})", 0), HasSubstr("papers"));
  EXPECT_THAT(
      refused(Type::kDeposit, R"({"step":"lease","lease":{"pid":1,"name":"x","age_s":0}})", 1),
      HasSubstr("lease"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"drain"})", 0), HasSubstr("deposited nothing"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"forget","keys":["a"]})", 0),
              HasSubstr("deposited nothing"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"forget","keys":[1]})", 0), HasSubstr("keys"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"artifact","artifact":{"key":"a","bytes":1}})", 0),
              HasSubstr("one descriptor"));
  EXPECT_THAT(
      refused(Type::kDeposit, R"({"step":"artifact","artifact":{"key":"../a","bytes":1}})", 1),
      HasSubstr("'../a'"));
  EXPECT_THAT(refused(Type::kPutArtifact, R"({"key":"a","bytes":1})", 1), HasSubstr("hello"));
  EXPECT_THAT(refused(Type::kGetArtifact, R"({"key":"a"})", 0), HasSubstr("hello"));
  EXPECT_THAT(refused(Type::kDeposit, R"({"step":"withdraw"})", 0), HasSubstr("deposited nothing"));
  EXPECT_THAT(refused(Type::kAdopt, "{}", 0), HasSubstr("place"));
  EXPECT_THAT(refused(Type::kAdopt, R"({"place":"nobody"})", 0),
              HasSubstr("nothing of that place"));
  EXPECT_THAT(refused(Type::kHandover, R"({"step":"prepare"})", 0), HasSubstr("does not serve"));
  EXPECT_THAT(refused(Type::kStatus, "{}", 1), HasSubstr("descriptor"));
  EXPECT_THAT(refused(Type::kDescribe, "{}", 0), HasSubstr("hello"));
  EXPECT_TRUE(keeper.status().deposits.empty());
}

TEST(Keeper, RefusesWhatADaemonHandsOverThatHasReleasedItsWeights) {
  LiveKeeper keeper;
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kPlace);
  PackageView view;  // papers without a generation, and the lock
  view.generation = 1;
  view.lock = lock.get();
  wire::DepositRequest request;
  std::vector<Fd> fds = pack(view);
  request.fds = fds.size();
  std::vector<int> numbers;
  for (const Fd& fd : fds) numbers.push_back(fd.get());
  const Fd socket = keeper.connect();
  EXPECT_THAT(refusal([&] {
                wire::exchange(socket.get(), wire::Type::kDeposit, wire::to_json(request), numbers,
                               kTimeoutMs);
              }).message,
              HasSubstr("generation"));
  EXPECT_TRUE(keeper.status().deposits.empty()) << "it goes on";
}

TEST(Keeper, TakesADepositOfManyFramesAndRefusesOneOutOfStep) {
  LiveKeeper keeper;
  const Residency residency = sample_residency();
  LeaseTable leases;
  std::vector<Fd> ends;
  for (int i = 0; i < 300; ++i) {
    LeasePipe pipe;
    Lease lease;
    lease.pipe = std::move(pipe.read);
    lease.pid = i;
    leases.add(std::move(lease));
    ends.push_back(std::move(pipe.write));
  }
  {
    Daemon daemon(keeper);
    daemon.deposit(residency, &leases);
    EXPECT_EQ(keeper.status().deposits.at(0).leases.size(), 300U);
  }
  EXPECT_EQ(unpack(wire::call_adopt(keeper.connect().get(), {kPlace.stem()}, kTimeoutMs).fds)
                .leases.size(),
            300U);
  ends.clear();
  EXPECT_TRUE(eventually([&] { return keeper.status().deposits.at(0).leases.empty(); }, kSoon));

  const Fd socket = keeper.connect();
  const Fd memfd = sealed_memfd("x");
  wire::send_frame(socket.get(), wire::Type::kDeposit, R"({"step":"package","fds":9})",
                   {memfd.get()}, kTimeoutMs);
  wire::send_frame(socket.get(), wire::Type::kDeposit, R"({"fds_from":5})", {memfd.get()},
                   kTimeoutMs);
  const wire::Frame frame = wire::receive_frame(socket.get(), kTimeoutMs);
  EXPECT_THAT(wire::error_reply_from_json(frame.body).message, HasSubstr("go on where"));
}

TEST(Keeper, DoesNotGiveAwayWhatADaemonServes) {
  LiveKeeper keeper;
  Daemon daemon(keeper);
  daemon.deposit(sample_residency());
  const auto reply =
      refusal([&] { wire::call_adopt(keeper.connect().get(), {kPlace.stem()}, kTimeoutMs); });
  EXPECT_EQ(reply.code, Errc::kBusy);
}

TEST(Keeper, EndsWhenNothingWasKeptForAWhile) {
  LiveKeeper keeper({.idle = std::chrono::milliseconds(50)});
  EXPECT_EQ(keeper.join(), 0);
}

TEST(Keeper, LetsGoOfWhatNobodyWantsButNotOfWhatIsLeased) {
  LiveKeeper keeper({.stay = true, .orphan = std::chrono::milliseconds(50)});
  LeasePipe pipe;
  {
    Daemon daemon(keeper);
    LeaseTable leases;
    Lease lease;
    lease.pipe = std::move(pipe.read);
    leases.add(std::move(lease));
    daemon.deposit(sample_residency(), &leases);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(keeper.status().deposits.size(), 1U);
  pipe.write.reset();
  EXPECT_TRUE(eventually([&] { return keeper.status().deposits.empty(); }, kSoon));
}

TEST(Keeper, LeaksNothingOverAThousandDeposits) {
  LiveKeeper keeper({.stay = true});
  const Residency residency = sample_residency();
  std::size_t before = 0;
  for (int i = 0; i < 1000; ++i) {
    Daemon daemon(keeper);
    daemon.deposit(residency);
    if (i == 10) before = open_descriptors();
  }
  EXPECT_EQ(keeper.status().deposits.size(), 1U);
  EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; }, kSoon));
}

TEST(KeeperLink, DepositsEachLeaseBeforeItsClientHasAnAnswer) {
  LiveKeeper keeper({.stay = true});
  const Fd lock = take_lock(keeper.directory(), kPlace);
  ServerOptions options;
  options.keeper = KeeperUse::kRequire;
  Server server(keeper.directory(), sample_residency(), std::move(options));
  server.deposit(kTimeoutMs);
  server.admit();
  std::thread thread([&] { server.run(); });
  for (std::size_t count = 1; count <= 20; ++count) {
    LeasePipe pipe;
    const Fd socket = connect_to(keeper.directory(), kPlace.socket_name(), kTimeoutMs);
    wire::call_attach(socket.get(), attach_request(), pipe.read.get(), kTimeoutMs);
    EXPECT_EQ(keeper.status().deposits.at(0).leases.size(), 1U);
    pipe.read.reset();
    pipe.write.reset();
    EXPECT_TRUE(eventually([&] { return keeper.status().deposits.at(0).leases.empty(); }, kSoon));
  }
  server.end({ServeEnd::Cause::kStopRequested, 0, "the test is over"});
  thread.join();
  EXPECT_TRUE(keeper.status().deposits.empty()) << "a stop withdraws";
}

// What a client would find with the keeper, or a start adopt, when this daemon is gone.
TEST(KeeperLink, WithoutOneADaemonWithdrawsWhatWasServedInItsPlaceBefore) {
  LiveKeeper keeper({.stay = true});
  { Daemon(keeper).deposit(sample_residency()); }
  ASSERT_EQ(keeper.status().deposits.size(), 1U);
  const Fd lock = take_lock(keeper.directory(), kPlace);
  Server server(keeper.directory(), sample_residency(), {});
  server.admit();
  std::thread thread([&] { server.run(); });
  EXPECT_TRUE(eventually([&] { return keeper.status().deposits.empty(); }, kSoon));
  server.end({ServeEnd::Cause::kSignal, 143, "the test is over"});
  thread.join();
}

TEST(KeeperLink, WithdrawsWhatASuccessorServesThatDoesNotDeposit) {
  LiveKeeper keeper({.stay = true});
  const Fd lock = take_lock(keeper.directory(), kPlace);
  ServerOptions options;
  options.keeper = KeeperUse::kRequire;
  options.lock = lock.get();
  Server first(keeper.directory(), sample_residency(), std::move(options));
  first.deposit(kTimeoutMs);
  first.admit();
  std::thread running([&] { first.run(); });
  Predecessor predecessor(keeper.directory(), kPlace);
  Package package = predecessor.take_package();
  Residency other = sample_residency();
  other.generation = 2;
  ServerOptions without;
  without.lock = package.lock.get();
  without.predecessor = &predecessor;
  Server second(keeper.directory(), std::move(other), std::move(without));
  second.admit();
  std::thread succeeding([&] { second.run(); });
  running.join();
  EXPECT_TRUE(eventually([&] { return keeper.status().deposits.empty(); }, kSoon));
  second.end({ServeEnd::Cause::kSignal, 143, "the test is over"});
  succeeding.join();
  EXPECT_TRUE(keeper.status().deposits.empty());
}

TEST(KeeperLink, OutOfDescriptorsServesOnAndDepositsWhenThereAreSome) {
  LiveKeeper keeper({.stay = true});
  const Fd lock = take_lock(keeper.directory(), kPlace);
  ServerOptions options;
  options.keeper = KeeperUse::kAuto;
  Server server(keeper.directory(), sample_residency(), std::move(options));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(duplicate(lock.get()).get()) + 2;  // to connect with
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  EXPECT_NO_THROW(server.deposit(100));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(keeper.status().deposits.empty());
  server.admit();
  std::thread thread([&] { server.run(); });
  EXPECT_TRUE(eventually([&] { return keeper.status().deposits.size() == 1; }, kSoon));
  server.end({ServeEnd::Cause::kStopRequested, 0, "the test is over"});
  thread.join();
}

TEST(KeeperLink, DepositsArtifactsAndTakesThoseThatWereLeftWithTheKeeper) {
  LiveKeeper keeper({.stay = true});
  Inheritance inheritance;
  std::optional<Fd> lock(take_lock(keeper.directory(), kPlace));
  const auto serve = [&](const std::function<void()>& body, ServeEnd::Cause end) {
    ServerOptions options;
    options.keeper = KeeperUse::kRequire;
    Server server(keeper.directory(), sample_residency(), std::move(options),
                  std::exchange(inheritance, {}));
    server.deposit(kTimeoutMs);
    server.admit();
    std::thread thread([&] { server.run(); });
    body();
    server.end({end, 0, "the test is over"});
    thread.join();
  };
  const auto daemon = [&] {
    return connect_to(keeper.directory(), kPlace.socket_name(), kTimeoutMs);
  };
  serve(
      [&] {
        put_artifact(daemon().get(), "k", "old");
        put_artifact(daemon().get(), "k", "new", "m");
      },
      ServeEnd::Cause::kSignal);
  lock.reset();
  EXPECT_EQ(get_artifact(ask_about(keeper).get(), "k"), "new|m");
  Package package =
      unpack(wire::call_adopt(keeper.connect().get(), {kPlace.stem()}, kTimeoutMs).fds);
  put_artifact(ask_about(keeper).get(), "left", "here");
  lock.emplace(take_lock(keeper.directory(), kPlace));
  inheritance.artifacts = std::move(package.artifacts);
  serve(
      [&] {
        EXPECT_EQ(get_artifact(daemon().get(), "k"), "new|m");
        EXPECT_EQ(get_artifact(daemon().get(), "left"), "here|");
      },
      ServeEnd::Cause::kStopRequested);
  EXPECT_TRUE(keeper.status().deposits.empty()) << "a stop leaves nothing behind";
}

TEST(KeeperLink, TellsWhatMadeRoomSoThatBothHaveTheSame) {
  LiveKeeper keeper({.stay = true});
  std::optional<Fd> lock(take_lock(keeper.directory(), kPlace));
  ServerOptions options;
  options.keeper = KeeperUse::kRequire;
  std::optional<Server> server(std::in_place, keeper.directory(), sample_residency(),
                               std::move(options));
  server->deposit(kTimeoutMs);
  server->admit();
  std::thread thread([&] { server->run(); });
  const Fd daemon = connect_to(keeper.directory(), kPlace.socket_name(), kTimeoutMs);
  const std::string metadata(wire::kMaxArtifactMetadataBytes, 'm');
  const auto key = [](int i) { return "k" + std::to_string(i); };
  put_artifact(daemon.get(), key(0), "x", metadata);
  for (int i = 1; i < 64; ++i) put_artifact(daemon.get(), key(i), "x", metadata);
  get_artifact(daemon.get(), key(0));                  // used: the next to go is 1
  put_artifact(daemon.get(), key(64), "x", metadata);  // 64 x 64 KiB fit
  server->end({ServeEnd::Cause::kSignal, 143, "the test is over"});
  thread.join();
  server.reset();
  lock.reset();
  std::vector<int> gone;
  for (int i = 0; i <= 64; ++i)
    if (!get_artifact(ask_about(keeper).get(), key(i))) gone.push_back(i);
  EXPECT_EQ(gone, std::vector<int>{1});
}

TEST(KeeperLink, RequiresAKeeperWhereItIsTold) {
  TempDir temp;
  const SocketDir directory = temp.open();
  ServerOptions options;
  options.keeper = KeeperUse::kRequire;
  Server server(directory, sample_residency(), std::move(options));
  try {
    server.deposit(100);
    ADD_FAILURE() << "deposited with nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kBusy);
    EXPECT_THAT(error.what(), HasSubstr("preload keeper"));
  }
}

}  // namespace
}  // namespace preload
