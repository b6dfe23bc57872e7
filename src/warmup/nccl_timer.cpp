// SPDX-License-Identifier: Apache-2.0
#include "warmup/nccl_timer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/bytes.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "comm/watchdog.hpp"
#include "warmup/nccl_communicator.hpp"
#include "warmup/sweep_table.hpp"
#include "warmup/tuner_control.hpp"

namespace preload::warmup {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kIds{60};
constexpr std::chrono::seconds kBeyond{30};  // the time limit of a run, where that cannot be told

std::string hex(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    text += fmt::format("{:02x}", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  }
  return text;
}

ncclUniqueId id_from(const std::string& text) {
  ncclUniqueId id{};
  if (text.size() != 2 * sizeof id.internal) {
    throw Error(Errc::kLauncher, "a rank has no NCCL communicator to offer");
  }
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

// A group as NCCL has it; `formed` unset where NCCL asks no tuner.
struct Member {
  NcclCommunicator communicator;
  tuner::Shape shape;
  std::optional<std::uint64_t> id;
};

class Timer final : public NcclTimer {
 public:
  Timer(Group& group, const std::vector<EngineGroup>& groups,
        std::unique_ptr<CollectiveDevice> device, const NcclTimerOptions& options,
        const Cancel& cancel)
      : options_(options), cancel_(cancel), library_(options.library), device_(std::move(device)) {
    if (!options.plugin.empty()) control_.emplace(options.plugin);
    const std::vector<ncclUniqueId> ids = name_groups(group, groups);
    for (std::size_t i = 0; i < groups.size(); ++i) form(groups[i], ids[i]);
  }

  int nccl_version() const override { return library_.version(); }

  std::vector<tuner::Shape> shapes() const override {
    std::vector<tuner::Shape> shapes;
    for (const Member& member : members_) shapes.push_back(member.shape);
    return shapes;
  }

  Offer offer(const SweepPoint& point) override {
    static_cast<void>(time(point, Choice{}, 1));
    const auto collective = collective_of(point.operation);
    const Member& member = members_.at(point.group);
    if (!collective || !member.id) return {};
    return control_->last_offer(*member.id, *collective);
  }

  double run(const SweepPoint& point, const Choice& choice, int repetitions) override {
    const double seconds = time(point, choice, repetitions);
    const auto collective = collective_of(point.operation);
    const Member& member = members_.at(point.group);
    if (!collective || !member.id) return seconds;
    // What NCCL did otherwise was not this choice's time.
    return control_->obeyed(*member.id, *collective, choice)
               ? seconds
               : std::numeric_limits<double>::quiet_NaN();
  }

  void release() override {
    for (Member& member : members_) member.communicator.destroy();
    members_.clear();
  }

 private:
  // Each group's first rank names it.
  std::vector<ncclUniqueId> name_groups(Group& group, const std::vector<EngineGroup>& groups) {
    nlohmann::json mine = nlohmann::json::array();
    for (const EngineGroup& each : groups) {
      ncclUniqueId id{};
      if (each.rank == 0) library_.check(library_.get_unique_id(&id), "naming a communicator");
      mine.push_back(each.rank == 0 ? hex(id) : std::string());
    }
    const std::vector<std::string> all =
        group.all_gather(mine.dump(), {"every rank to open NCCL", cancel_, kIds});
    std::vector<ncclUniqueId> ids;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto first = static_cast<std::size_t>(groups[i].ranks.front());
      ids.push_back(id_from(nlohmann::json::parse(all.at(first)).at(i).get<std::string>()));
    }
    return ids;
  }

  void form(const EngineGroup& group, const ncclUniqueId& id) {
    const std::string what = fmt::format("forming the NCCL communicator {}", describe(group));
    const auto ranks = static_cast<int>(group.ranks.size());
    NcclCommunicator communicator(library_, id, group.rank, ranks, [this] { device_->use(); },
                                  {what, cancel_, options_.form_timeout});
    Member member{std::move(communicator), {ranks, 0}, std::nullopt};
    if (const auto formed = control_ ? control_->last_formed() : std::nullopt) {
      if (formed->shape.ranks == ranks) {
        member.shape = formed->shape;
        member.id = formed->id;
      }
    }
    members_.push_back(std::move(member));
  }

  double time(const SweepPoint& point, const Choice& choice, int repetitions) {
    const Member& member = members_.at(point.group);
    if (const auto collective = collective_of(point.operation); collective && member.id) {
      control_->answer(*member.id, *collective, choice);
    }
    const auto deadline = Clock::now() + options_.run_timeout;
    CollectiveDevice::Work work;
    work.enqueue = [&] {
      member.communicator.enqueue(point.operation, point.bytes, device_->source(),
                                  device_->target(), device_->stream());
    };
    work.repetitions = repetitions;
    work.captured = point.captured;
    work.wait = [&] {
      cancel_.check();
      member.communicator.check();
      if (Clock::now() < deadline) return;
      throw Error(Errc::kLauncher,
                  fmt::format("{} of {} did not end within {} s", operation_name(point.operation),
                              format_bytes(point.bytes), options_.run_timeout.count()));
    };
    // The first use of an algorithm connects to other ranks inside NCCL's own call.
    const Watchdog watchdog(
        options_.run_timeout + kBeyond, exit_status(Errc::kLauncher),
        fmt::format("{} of {} on {} hangs in NCCL: NCCL_DEBUG=INFO shows where, --disable-autotune "
                    "does without",
                    operation_name(point.operation), format_bytes(point.bytes), host_name()));
    return device_->time(work);
  }

  const NcclTimerOptions options_;
  const Cancel& cancel_;
  const NcclLibrary library_;
  const std::unique_ptr<CollectiveDevice> device_;
  std::optional<TunerControl> control_;
  std::vector<Member> members_;  // given up before the device goes: what hangs there ends with them
};

}  // namespace

int nccl_library_version(const std::string& library) { return NcclLibrary(library).version(); }

std::unique_ptr<NcclTimer> make_nccl_timer(Group& group, const std::vector<EngineGroup>& groups,
                                           std::unique_ptr<CollectiveDevice> device,
                                           const NcclTimerOptions& options, const Cancel& cancel) {
  return std::make_unique<Timer>(group, groups, std::move(device), options, cancel);
}

}  // namespace preload::warmup
