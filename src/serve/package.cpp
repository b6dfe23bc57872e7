// SPDX-License-Identifier: Apache-2.0
#include "serve/package.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "serve/artifact_package.hpp"
#include "serve/package_papers.hpp"
#include "serve/sealed_text.hpp"
#include "wire/manifest.hpp"

namespace preload {
namespace {

constexpr std::uint64_t kMaxPapersBytes = 64 << 20;    // receipts and shards of a few generations
constexpr std::uint64_t kMaxManifestBytes = 1U << 30;  // a hundred times 90,000 tensors

// Hands the descriptors out in order.
class Taker {
 public:
  explicit Taker(std::vector<Fd> fds) : fds_(std::move(fds)) {}
  Fd take(std::string_view what) {
    if (next_ == fds_.size()) reject_package(fmt::format("the descriptor of {} is missing", what));
    return std::move(fds_[next_++]);
  }
  std::vector<Fd> take(std::size_t count, std::string_view what) {
    std::vector<Fd> taken;
    while (taken.size() < count) taken.push_back(take(what));
    return taken;
  }
  void check_all_taken() const {
    if (next_ != fds_.size())
      reject_package(fmt::format("{} descriptors too many", fds_.size() - next_));
  }

 private:
  std::vector<Fd> fds_;
  std::size_t next_ = 0;
};

void check_manifest(const Residency& residency) {
  const std::uint64_t bytes =
      sealed_size(residency.manifest.get(), "the manifest", kMaxManifestBytes);
  const Mapping mapping = map_fd(residency.manifest.get(), bytes, false, "the manifest");
  const wire::ManifestView view(mapping.bytes());
  bool fits = view.slab_count() == residency.slabs.size() && view.size() == residency.tensor_count;
  for (std::size_t i = 0; fits && i < residency.slabs.size(); ++i) {
    const wire::ManifestSlab slab = view.slab(i);
    fits = slab.bytes == residency.slabs[i].bytes && slab.cls == residency.slabs[i].cls;
  }
  if (!fits) reject_package("the manifest has other slabs or tensors than the papers");
}

// Device memory is a descriptor of the driver's: neither a file, a pipe nor a socket. More about
// it only CUDA can tell.
void check_slab(const SlabHandle& slab, std::size_t number) {
  const std::string what = fmt::format("slab {}", number);
  if (slab.kind == HandleKind::kHost) {
    const std::uint64_t most = ~std::uint64_t{0};
    if (sealed_size(slab.fd.get(), what, most) < slab.bytes)
      reject_package(fmt::format("{} is shorter than {} bytes", what, slab.bytes));
    return;
  }
  struct stat info {};
  check_sys(::fstat(slab.fd.get(), &info), "looking at a slab", Errc::kProtocol);
  if (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || S_ISDIR(info.st_mode))
    reject_package(what + " is no device memory");
}

void take_handles(Taker& taker, Residency& residency) {
  residency.manifest = taker.take("the manifest");
  for (std::size_t i = 0; i < residency.slabs.size(); ++i) {
    residency.slabs[i].fd = taker.take("a slab");
    check_slab(residency.slabs[i], i);
  }
  check_manifest(residency);
}

}  // namespace

void check_socket(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode))
    reject_package("the listening socket is no socket");
}

std::vector<Fd> pack(const PackageView& view) {
  std::vector<Fd> fds(1);
  for (const Residency* residency : view.generations) {
    if (export_kind_of(*residency) == wire::kCudaIpcKind)
      throw Error(Errc::kUsage,
                  fmt::format("the weights of {} are cuda-ipc memory, which ends with its process: "
                              "stop that daemon first, or serve with --export vmm",
                              residency->endpoint.device));
    fds.push_back(duplicate(residency->manifest.get()));
    for (const SlabHandle& slab : residency->slabs) fds.push_back(duplicate(slab.fd.get()));
  }
  PackagePapers papers;
  papers.draining = view.draining;
  papers.generation = view.generation;
  papers.has_lock = view.lock >= 0;
  if (view.leases != nullptr) papers.leases = pack_leases(*view.leases, fds);
  if (view.artifacts != nullptr) {
    papers.artifacts = view.artifacts->size();
    pack_artifacts(view.artifacts->put_since(0), fds);
  }
  if (papers.has_lock) fds.push_back(duplicate(view.lock));
  fds.front() = seal_text("preload-papers", write_papers(papers, view.generations));
  return fds;
}

Package unpack(std::vector<Fd> fds) {
  Taker taker(std::move(fds));
  const Fd text = taker.take("the papers");
  const Mapping mapping = map_sealed_text(text.get(), "the papers", kMaxPapersBytes);
  Package package;
  const PackagePapers papers = read_papers(text_of(mapping), package.generations);
  for (Residency& residency : package.generations) take_handles(taker, residency);
  for (const wire::LeaseStatus& lease : papers.leases)
    package.leases.push_back(unpack_lease(lease, taker.take("a lease")));
  package.artifacts = unpack_artifacts(taker.take(artifact_fds(papers.artifacts), "an artifact"));
  if (papers.has_lock) package.lock = taker.take("the lock");
  taker.check_all_taken();
  package.draining = papers.draining;
  package.generation = papers.generation;
  return package;
}

std::vector<wire::LeaseStatus> pack_leases(const LeaseTable& leases, std::vector<Fd>& pipes) {
  std::vector<wire::LeaseStatus> statuses;
  for (const auto& [fd, lease] : leases.leases()) {
    statuses.push_back({lease.pid, lease.name, age_s(lease), lease.generation});
    pipes.push_back(duplicate(fd));
  }
  return statuses;
}

Lease unpack_lease(const wire::LeaseStatus& status, Fd pipe) {
  if (!is_lease_pipe(pipe.get())) reject_package("a lease is not the read end of a pipe");
  Lease lease;
  lease.pipe = std::move(pipe);
  lease.pid = status.pid;
  lease.name = printable_name(status.name);
  lease.generation = status.generation.value_or(1);
  // An age that no clock can have had is none.
  constexpr double kMostSeconds = 1e9;
  const double age = status.age_s >= 0 && status.age_s < kMostSeconds ? status.age_s : 0;
  lease.since = std::chrono::steady_clock::now() -
                std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                    std::chrono::duration<double>(age));
  return lease;
}

bool is_same_place(const Endpoint& one, const Endpoint& other) {
  return one.device == other.device && one.slot == other.slot && one.role == other.role;
}

std::string_view kind_on_wire(HandleKind kind) noexcept {
  switch (kind) {
    case HandleKind::kHost:
      return wire::kHostKind;
    case HandleKind::kVmm:
      return wire::kVmmKind;
    case HandleKind::kCudaIpc:
      break;
  }
  return wire::kCudaIpcKind;
}

// A shard without a byte has no slab to ask.
std::string_view export_kind_of(const Residency& residency) {
  if (!residency.slabs.empty()) return kind_on_wire(residency.slabs.front().kind);
  return residency.endpoint.device.starts_with("host:") ? wire::kHostKind : wire::kVmmKind;
}

std::uint64_t bytes_of(const Residency& residency) noexcept {
  std::uint64_t sum = 0;
  for (const SlabHandle& slab : residency.slabs) sum += slab.bytes;
  return sum;
}

}  // namespace preload
