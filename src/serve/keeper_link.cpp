// SPDX-License-Identifier: Apache-2.0
#include "serve/keeper_link.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "serve/artifact_package.hpp"
#include "serve/connect.hpp"
#include "serve/keeper.hpp"
#include "serve/package.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

// A look at one name of a local directory: cheap enough to notice a new keeper soon.
constexpr auto kRetry = std::chrono::seconds(1);

}  // namespace

Fd connect_to_keeper(const SocketDir& directory, int timeout_ms) {
  try {
    return connect_to(directory, std::string(kKeeperSocket), timeout_ms);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    throw Error(Errc::kBusy,
                fmt::format("no keeper runs in '{}': start `preload keeper` there first, or serve "
                            "with --keeper auto",
                            directory.path()));
  }
}

KeeperLink::KeeperLink(const SocketDir& directory, SessionLoop& loop, Holding& holding,
                       ArtifactStore& artifacts)
    : directory_(directory),
      loop_(loop),
      holding_(holding),
      artifacts_(artifacts),
      reader_(wire::kMaxFds) {}

KeeperLink::~KeeperLink() {
  if (socket_) loop_.unwatch(socket_.get());
}

std::optional<KeeperLink::Clock::time_point> KeeperLink::next_try() const {
  if (socket_ || withdrawn_) return std::nullopt;
  return next_try_;
}

void KeeperLink::connect(bool now) {
  if (socket_ || withdrawn_ || (!now && Clock::now() < next_try_)) return;
  if (holding_.state() == wire::DaemonState::kReleased) {
    withdrawn_ = true;  // nothing is left to deposit
    return;
  }
  next_try_ = Clock::now() + kRetry;
  try {
    socket_ = connect_to(directory_, std::string(kKeeperSocket), 0);
  } catch (const Error& error) {
    if (error.code() == Errc::kUnavailable) return;  // none runs
    if (!std::exchange(complained_, true)) log::warn(error.what());
    return;
  }
  reader_ = wire::FrameReader(wire::kMaxFds);
  writer_ = {};
  pending_.clear();
  arriving_.reset();
  try {
    loop_.watch(socket_.get(), EPOLLIN, [this](std::uint32_t) { on_events(); });
    deposit();
  } catch (const Error& error) {
    lose(fmt::format("nothing could be deposited ({})", error.what()));
  }
}

void KeeperLink::deposit() {
  PackageView view = holding_.package_view();
  view.artifacts = &artifacts_;
  std::vector<Fd> fds = pack(view);
  wire::DepositRequest request;
  request.fds = fds.size();
  ask(request, std::move(fds));
}

void KeeperLink::ask(const wire::DepositRequest& request, std::vector<Fd> fds) {
  writer_.push_owned(wire::Type::kDeposit, wire::to_json(request), std::move(fds));
  pending_.push_back(request.step);
  flush();
}

void KeeperLink::flush() try {
  const bool all = writer_.write(socket_.get());
  loop_.watch_for(socket_.get(), all ? EPOLLIN : EPOLLIN | EPOLLOUT);
} catch (const Error& error) {
  lose(error.what());
}

void KeeperLink::on_events() try {
  while (socket_) {
    switch (reader_.read(socket_.get())) {
      case wire::FrameReader::Result::kFrame:
        take(reader_.take());
        break;
      case wire::FrameReader::Result::kClosed:
        lose("the keeper has ended");
        return;
      case wire::FrameReader::Result::kNeedMore:
        flush();
        return;
    }
  }
} catch (const std::exception& error) {
  lose(error.what());
}

void KeeperLink::take(wire::Frame frame) {
  if (frame.type == wire::Type::kError)
    throw Error(Errc::kProtocol,
                "the keeper refused: " + wire::error_reply_from_json(frame.body).message);
  if (frame.type != wire::Type::kDeposit || (pending_.empty() && !arriving_))
    throw Error(Errc::kProtocol, "the keeper answered what it was not asked");
  if (!arriving_) {
    arriving_ = wire::deposit_reply_from_json(frame.body);
    arrived_.clear();
  } else if (frame.fds.empty()) {
    throw Error(Errc::kProtocol, "the keeper left descriptors out");
  }
  for (Fd& fd : frame.fds) arrived_.push_back(std::move(fd));
  if (arrived_.size() >= expected_fds()) take_all();
}

std::size_t KeeperLink::expected_fds() const {
  return arriving_->leases.size() + artifact_fds(arriving_->artifacts);
}

void KeeperLink::take_all() {
  if (arrived_.size() != expected_fds())
    throw Error(Errc::kProtocol, "the keeper sent other descriptors than it named");
  const wire::DepositReply reply = std::exchange(arriving_, std::nullopt).value();
  std::vector<Fd> fds = std::exchange(arrived_, {});
  std::vector<Lease> leases;
  for (std::size_t i = 0; i < reply.leases.size(); ++i)
    leases.push_back(unpack_lease(reply.leases[i], std::move(fds[i])));
  fds.erase(fds.begin(), fds.begin() + static_cast<std::ptrdiff_t>(leases.size()));
  if (!leases.empty())
    log::info(fmt::format("{} leases of {} were opened with the keeper: they go on here",
                          leases.size(), holding_.place()));
  holding_.take_over({}, std::move(leases));
  take_artifacts(std::move(fds));
  const auto step = pending_.front();
  pending_.pop_front();
  if (step != wire::DepositRequest::Step::kPackage) return;
  complained_ = false;
  log::info(fmt::format("the keeper has {}, {}, too: it outlives this daemon", holding_.place(),
                        format_bytes(bytes_of(holding_.residency()))));
}

// The keeper has them already, and makes the same room for them.
void KeeperLink::take_artifacts(std::vector<Fd> fds) {
  std::vector<Artifact> artifacts = unpack_artifacts(std::move(fds));
  if (artifacts.empty()) return;
  log::info(fmt::format("{} were left with the keeper for {}: they go on here",
                        counted(artifacts.size(), "artifact"), holding_.place()));
  for (Artifact& artifact : artifacts) artifacts_.put(std::move(artifact));
}

void KeeperLink::lose(const std::string& why) {
  if (!socket_) return;
  loop_.unwatch(socket_.get());
  socket_.reset();
  pending_.clear();
  writer_ = {};  // and the descriptors that it was to send
  next_try_ = Clock::now() + kRetry;
  if (withdrawn_ || std::exchange(complained_, true)) return;
  log::warn(fmt::format("{}: {} ends with this daemon until a keeper has it again", why,
                        holding_.place()));
}

void KeeperLink::add(const Lease& lease) {
  if (!socket_) return;
  wire::DepositRequest request;
  request.step = wire::DepositRequest::Step::kLease;
  request.lease = {lease.pid, lease.name, age_s(lease), lease.generation};
  std::vector<Fd> fds;
  fds.push_back(duplicate(lease.pipe.get()));
  ask(request, std::move(fds));
}

void KeeperLink::add(const Artifact& artifact) {
  if (!socket_ || withdrawn_) return;
  wire::DepositRequest request;
  request.step = wire::DepositRequest::Step::kArtifact;
  request.artifact = artifact.about;
  std::vector<Fd> fds;
  fds.push_back(duplicate(artifact.content.get()));
  ask(request, std::move(fds));
}

void KeeperLink::forget(const std::vector<std::string>& keys) {
  if (!socket_ || withdrawn_ || keys.empty()) return;
  wire::DepositRequest request;
  request.step = wire::DepositRequest::Step::kForget;
  request.keys = keys;
  ask(request, {});
}

void KeeperLink::drain() {
  if (!socket_) return;
  wire::DepositRequest request;
  request.step = wire::DepositRequest::Step::kDrain;
  ask(request, {});
}

void KeeperLink::withdraw() {
  if (std::exchange(withdrawn_, true) || !socket_) return;
  wire::DepositRequest request;
  request.step = wire::DepositRequest::Step::kWithdraw;
  ask(request, {});
}

}  // namespace preload
