// SPDX-License-Identifier: Apache-2.0
#include "run/adoption.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "load/consumed_hashes.hpp"
#include "load/evidence.hpp"
#include "load/receipt.hpp"
#include "memory/adopted_slabs.hpp"
#include "run/adoption_sample.hpp"
#include "run/residency_build.hpp"
#include "serve/connect.hpp"
#include "serve/expectation.hpp"
#include "serve/keeper.hpp"
#include "wire/exchange.hpp"
#include "wire/manifest.hpp"

namespace preload::run {
namespace {

constexpr int kKeeperTimeoutMs = 5000;
constexpr std::string_view kNothingOffered = "nothing is kept for it";

// What rank 0 knows of the checkpoint's bytes without reading them: its files' receipt, and the
// checkpoint's id where every hash that goes into it is remembered.
struct KnownBytes {
  Receipt receipt;
  std::string id;
};

KnownBytes share_known_bytes(Group& group, const RankPlan& plan, const Cancel& cancel) {
  std::string text;
  if (group.rank() == 0) {
    const ConsumedHashes hashes = recall_consumed(plan.checkpoint, plan.program);
    if (hashes.missing.empty()) text = checkpoint_id(plan.checkpoint, hashes.known);
    text += "\n" + to_json(take_receipt(plan.checkpoint));
  }
  text = group.broadcast(text, 0, {"rank 0 to look at the checkpoint's files", cancel});
  const std::size_t end = text.find('\n');
  return {receipt_from_json(std::string_view(text).substr(end + 1)), text.substr(0, end)};
}

bool lies_alike(const wire::ManifestTensor& a, const wire::ManifestTensor& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.strides == b.strides &&
         a.slab == b.slab && a.offset == b.offset && a.bytes == b.bytes && a.kind == b.kind &&
         a.cls == b.cls && a.alias == b.alias;
}

// Hashes of the manifest's tensors when they are the plan's, one by one; none when not.
std::optional<std::vector<Hash128>> planned_hashes(const RankPlan& plan, const Residency& kept) {
  struct stat info {};
  check_sys(::fstat(kept.manifest.get(), &info), "looking at the manifest");
  const Mapping mapping =
      map_fd(kept.manifest.get(), static_cast<std::size_t>(info.st_size), false, "the manifest");
  const wire::ManifestView view(mapping.bytes());
  if (view.size() != plan.program.tensors.size()) return std::nullopt;
  std::vector<Hash128> hashes;
  hashes.reserve(view.size());
  for (std::size_t i = 0; i < view.size(); ++i) {
    const wire::ManifestTensor found = view[i];
    if (!lies_alike(manifest_tensor(plan, i, found.hash), found)) return std::nullopt;
    hashes.push_back(found.hash);
  }
  return hashes;
}

bool has_slabs(const Residency& kept, const std::vector<SlabSpec>& slabs, HandleKind kind) {
  return std::ranges::equal(kept.slabs, slabs, [&](const SlabHandle& handle, const SlabSpec& slab) {
    return handle.kind == kind && handle.bytes == slab.bytes && handle.cls == slab.cls;
  });
}

class Adoption {
 public:
  Adoption(const cli::ServeOptions& options, const Launch& launch, HandleKind kind,
           RoleDaemon& daemon)
      : options_(options), launch_(launch), kind_(kind), daemon_(daemon) {}

  // Why this rank cannot take what was offered; nothing when it can.
  std::optional<std::string> consider(const KnownBytes& known) try {
    if (!daemon_.offer) return std::string(kNothingOffered);
    if (daemon_.offer->draining) return "it was released";
    const Residency& kept = daemon_.offer->generations.front();
    Receipt theirs;
    if (!kept.receipt_json.empty()) theirs = receipt_from_json(kept.receipt_json);
    const bool same_receipt = same_files(known.receipt, theirs);
    if (!same_receipt && known.id != kept.checkpoint)
      return "nothing shows without reading the checkpoint that it is the same";
    receipt_json_ = same_receipt ? kept.receipt_json : to_json(known.receipt);
    wire::Expectation expect;
    expect.fields = key_fields(daemon_.plan.spec, daemon_.plan.model.layout, daemon_.plan.program,
                               daemon_.role.sizes, *daemon_.role.coords, kept.checkpoint);
    if (const auto mismatches = find_mismatches(expect, kept); !mismatches.empty())
      return mismatch_text(mismatches);
    if (kept.key != key_digest(expect.fields)) return "its key is of another release";
    if (!has_slabs(kept, daemon_.plan.load.slabs.slabs, kind_))
      return "its memory is of another kind or cut into other slabs";
    auto hashes = planned_hashes(daemon_.plan, kept);
    if (!hashes) return "its tensors lie elsewhere than this release puts them";
    result_.served = std::move(*hashes);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();  // papers that make no sense
  }

  // Maps the memory and hashes some of it.
  std::optional<std::string> take_memory(const Cancel& cancel) try {
    Residency& kept = daemon_.offer->generations.front();
    auto memory = std::make_unique<AdoptedSlabs>(kind_, daemon_.plan.load.slabs.slabs,
                                                 std::move(kept.slabs), launch_.device.ordinal);
    const LoadWork work{daemon_.plan.load, daemon_.plan.program, daemon_.plan.checkpoint,
                        daemon_.plan.reads, *memory};
    const std::vector<std::uint32_t> sample =
        sample_tensors(daemon_.plan.program, daemon_.plan.load);
    LoadOptions how;
    how.threads = options_.threads;
    how.device = launch_.device.ordinal;
    const std::vector<Hash128> hashes = hash_served(work, sample, how, cancel);
    for (std::size_t i = 0; i < sample.size(); ++i) {
      if (hashes[i] == result_.served[sample[i]]) continue;
      return fmt::format("tensor {} hashes to {} where it lies, not to {} as when it was loaded",
                         daemon_.plan.program.tensors[sample[i]].name, to_hex(hashes[i]),
                         to_hex(result_.served[sample[i]]));
    }
    daemon_.memory = std::move(memory);
    return std::nullopt;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }

  void finish() {
    Package& offer = *daemon_.offer;
    const Residency& kept = offer.generations.front();
    daemon_.residency = build_residency(launch_, daemon_.role, daemon_.plan, result_,
                                        kept.checkpoint, std::move(receipt_json_));
    daemon_.residency->generation = kept.generation + 1;
    offer.generations.erase(offer.generations.begin());
    daemon_.inheritance.older = std::move(offer.generations);
    daemon_.inheritance.leases = std::move(offer.leases);
    daemon_.offer.reset();
    daemon_.plan = {};
  }

 private:
  const cli::ServeOptions& options_;
  const Launch& launch_;
  HandleKind kind_;
  RoleDaemon& daemon_;
  LoadResult result_;
  std::string receipt_json_;
};

// Whether no rank has anything against it. Ranks that hold nothing of the role say nothing. The
// first objection is logged, when somebody was offered something.
bool all_can(Group& group, const RoleDaemon& daemon, const std::optional<std::string>& objection,
             const Cancel& cancel) {
  std::string mine = "-";
  if (daemon.is_here()) mine = objection.value_or("");
  const std::vector<std::string> all =
      group.all_gather(mine, {"every rank to look at what is kept for it", cancel});
  const auto says_no = [](const std::string& text) { return text != "-" && !text.empty(); };
  const auto first = std::ranges::find_if(all, says_no);
  if (first == all.end()) return true;
  const bool offered = std::ranges::any_of(
      all, [](const std::string& text) { return text != "-" && text != kNothingOffered; });
  if (offered && group.rank() == 0)
    log::warn(fmt::format("what is kept of role {} is not adopted, and loaded again: rank {}: {}",
                          role_name(daemon.role.role), first - all.begin(), *first));
  return false;
}

// What clients use goes on beside what is loaded. What a keeper has stays with it until the load
// has succeeded, or its memory is needed.
void decline(RoleDaemon& daemon) {
  daemon.declined = true;
  if (!daemon.offer) return;
  Package offer = std::exchange(daemon.offer, std::nullopt).value();
  daemon.generation = offer.generations.front().generation + 1;
  if (daemon.predecessor) {
    daemon.inheritance.older = std::move(offer.generations);
    daemon.inheritance.leases = std::move(offer.leases);
    return;
  }
  daemon.keeper_has_other = true;
  LeaseTable open;
  for (Lease& lease : offer.leases) open.add(std::move(lease));
  static_cast<void>(open.take_ended());
  daemon.inheritance.leases = open.take_all();
  if (!daemon.inheritance.leases.empty()) daemon.inheritance.older = std::move(offer.generations);
}

}  // namespace

void find_offer(const SocketDir& directory, const cli::ServeOptions& options, RoleDaemon& daemon) {
  if (!daemon.is_here() || daemon.predecessor || options.keeper == KeeperUse::kOff) return;
  try {
    const Fd socket = connect_to(directory, std::string(kKeeperSocket), kKeeperTimeoutMs);
    wire::PackageAnswer answer =
        wire::call_adopt(socket.get(), {daemon.role.endpoint.stem()}, kKeeperTimeoutMs);
    Package package = unpack(std::move(answer.fds));
    if (package.generations.empty())
      throw Error(Errc::kProtocol, "the keeper sent papers without a generation");
    if (!is_same_place(package.generations.front().endpoint, daemon.role.endpoint))
      throw Error(Errc::kProtocol, "the keeper sent what is of another place");
    daemon.inheritance.artifacts = std::move(package.artifacts);
    daemon.offer = std::move(package);
  } catch (const Error& error) {
    // No keeper, or nothing kept: the usual start.
    if (error.code() != Errc::kUnavailable) log::warn(fmt::format("keeper: {}", error.what()));
  }
}

bool adopt(Group& group, const cli::ServeOptions& options, const Launch& launch, HandleKind kind,
           RoleDaemon& daemon, const Cancel& cancel) {
  const auto offers =
      group.all_gather(daemon.offer ? "1" : "", {"every rank to ask for what is kept", cancel});
  if (std::ranges::all_of(offers, &std::string::empty)) return false;
  const KnownBytes known = share_known_bytes(group, daemon.plan, cancel);
  Adoption adoption(options, launch, kind, daemon);
  std::optional<std::string> objection;
  if (daemon.is_here()) objection = adoption.consider(known);
  bool adopted = all_can(group, daemon, objection, cancel);
  if (adopted) {
    if (daemon.is_here()) objection = adoption.take_memory(cancel);
    adopted = all_can(group, daemon, objection, cancel);
  }
  if (!adopted) {
    daemon.memory.reset();
    decline(daemon);
    return false;
  }
  if (daemon.is_here()) adoption.finish();
  if (group.rank() == 0)
    log::info(fmt::format("role {} was adopted as it lies: nothing of its checkpoint is read",
                          role_name(daemon.role.role)));
  return true;
}

}  // namespace preload::run
