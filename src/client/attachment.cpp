// SPDX-License-Identifier: Apache-2.0
#include "client/attachment.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include "wire/exchange.hpp"

namespace preload::client {
namespace {

// What a peer says must fit together before anything is mapped.
void check_slabs(const wire::AttachReply& reply, const wire::ManifestView& manifest) {
  if (manifest.slab_count() != reply.slabs.size()) {
    throw Error(Errc::kProtocol, fmt::format("the daemon's manifest has {} slabs, its reply {}",
                                             manifest.slab_count(), reply.slabs.size()));
  }
  for (std::size_t i = 0; i < reply.slabs.size(); ++i) {
    const wire::ManifestSlab slab = manifest.slab(i);
    if (slab.bytes != reply.slabs[i].bytes || slab.cls != reply.slabs[i].cls) {
      throw Error(Errc::kProtocol,
                  fmt::format("slab {} is {} bytes in the daemon's manifest and {} in its reply, "
                              "or of another class",
                              i, slab.bytes, reply.slabs[i].bytes));
    }
    const std::string& kind = reply.slabs[i].kind;
    if ((kind == wire::kHostKind) != (reply.device == "host") || kind != reply.slabs[0].kind) {
      throw Error(Errc::kProtocol,
                  fmt::format("slab {} of a daemon on {} is of kind {}", i, reply.device, kind));
    }
  }
}

}  // namespace

Attachment::Attachment(const AttachOptions& options) : placement_(options.placement) {
  try {
    receive(options);
  } catch (...) {
    release_cuda_slabs();
    throw;
  }
}

// What the daemon is to check. Comparing files may take minutes: that has a connection of its own,
// so that the daemon need not keep an idle one.
wire::Expectation Attachment::settle(const AttachOptions& options) {
  wire::Expectation expect = options.expect.served;
  if (!expect.empty()) evidence_ = Evidence::kKey;
  if (options.expect.model.empty()) return expect;
  wire::DescribeReply served;
  {
    const Connection connection = connect_daemon(options.connect);
    served = wire::call_describe(connection.socket.get(), options.connect.connect_timeout_ms);
  }
  ModelMatch match = match_model(options.expect, served);
  evidence_ = match.evidence;
  // Another daemon may have taken its place meanwhile.
  if (!expect.key) expect.key = std::move(match.key);
  return expect;
}

void Attachment::receive(const AttachOptions& options) {
  wire::AttachRequest request;
  request.expect = settle(options);
  const Connection connection = connect_daemon(options.connect);
  request.client = options.connect.identity;
  if (placement_.copy) request.mode = wire::AttachMode::kCopy;
  wire::Attached attached = wire::call_attach(connection.socket.get(), request, lease_.read_end(),
                                              options.connect.connect_timeout_ms);
  lease_.sent();
  reply_ = std::move(attached.reply);
  take_manifest(std::move(attached.manifest));
  check_slabs(reply_, *manifest_);
  map_slabs(attached.slab_fds);
  if (placement_.copy) let_go(connection, options.connect.connect_timeout_ms);
}

void Attachment::take_manifest(Fd fd) {
  if (!is_sealed(fd.get())) {
    throw Error(Errc::kProtocol, "the daemon's manifest is not sealed: it could change under us");
  }
  struct stat info {};
  check_sys(::fstat(fd.get(), &info), "looking at the manifest", Errc::kProtocol);
  if (info.st_size <= 0) throw Error(Errc::kProtocol, "the daemon's manifest is empty");
  manifest_bytes_ = map_fd(fd.get(), static_cast<std::size_t>(info.st_size), false, "the manifest");
  manifest_.emplace(manifest_bytes_.bytes());
}

void Attachment::map_slabs(const std::vector<Fd>& fds) {
  if (reply_.device == "host") {
    slabs_ = map_host_slabs(reply_.slabs, fds, placement_);
  } else {
    map_cuda_slabs(fds);
  }
}

void Attachment::map_cuda_slabs(const std::vector<Fd>& fds) {
  driver_ = std::make_unique<const cu::Driver>();
  context_ = std::make_unique<const cu::PrimaryContext>(*driver_,
                                                        cu::find_device(*driver_, reply_.gpu_uuid));
  const cu::CurrentContext current(*context_);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  driver_->check(driver_->mem_info(&free_bytes, &total_bytes), "asking for free GPU memory");
  require_room(reply_.slabs, placement_, free_bytes, "GPU memory");
  const bool vmm = !reply_.slabs.empty() && reply_.slabs.front().kind == wire::kVmmKind;
  slabs_ = vmm ? map_vmm_slabs(*context_, reply_.slabs, fds, placement_)
               : map_ipc_slabs(*context_, reply_.slabs, placement_);
}

// A copy needs the daemon's memory no more: it goes with the last lease, and ours ends here.
void Attachment::let_go(const Connection& connection, int timeout_ms) {
  try {
    wire::call_release(connection.socket.get(), {true}, timeout_ms);
  } catch (const Error& error) {
    // A daemon that has gone meanwhile has nothing to let go of.
    if (error.code() != Errc::kUnavailable) throw;
  }
  lease_.end();
}

Attachment::~Attachment() {
  if (lease_.is_of_this_process()) {
    release_cuda_slabs();
  } else if (context_) {
    // A forked child: the driver's state is the parent's, and so are the mappings.
    static_cast<void>(slabs_.release());
    static_cast<void>(context_.release());
    static_cast<void>(driver_.release());
  }
}

void Attachment::release_cuda_slabs() noexcept {
  if (!context_) return;
  const cu::Driver& driver = context_->driver();
  const bool current = driver.ctx_push(context_->get()) == 0;
  // Kernels already queued may still read the slabs. Errors of earlier work are not ours to report.
  if (current) driver.ctx_synchronize();
  slabs_.reset();
  cu::Context popped = nullptr;
  if (current) driver.ctx_pop(&popped);
}

std::uint64_t Attachment::bytes() const noexcept {
  std::uint64_t total = 0;
  for (const wire::SlabInfo& slab : reply_.slabs) total += slab.bytes;
  return total;
}

}  // namespace preload::client
