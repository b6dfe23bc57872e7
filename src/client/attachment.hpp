// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/connect.hpp"
#include "client/cuda_device.hpp"
#include "client/expectation.hpp"
#include "client/lease.hpp"
#include "client/mapped_slabs.hpp"
#include "wire/manifest.hpp"

namespace preload::client {

struct AttachOptions {
  ConnectOptions connect;
  Expectation expect;
  Placement placement;
};

// One shard in this process: its manifest, its slabs and the lease on them. Whole once constructed;
// a constructor that throws has given everything back. Thread-safe for reading.
class Attachment {
 public:
  explicit Attachment(const AttachOptions& options);
  ~Attachment();  // waits for the device's queued work, unmaps, ends the lease
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  const wire::AttachReply& reply() const noexcept { return reply_; }
  // What the claim rests on that the expected is attached.
  Evidence evidence() const noexcept { return evidence_; }
  const wire::ManifestView& manifest() const noexcept { return *manifest_; }
  std::byte* slab_data(std::size_t slab) const noexcept { return slabs_->data(slab); }
  std::uint64_t range_bytes() const noexcept { return slabs_->range_bytes(); }
  bool is_copy() const noexcept { return placement_.copy; }
  bool owns(std::size_t slab) const noexcept { return placement_.owns(reply_.slabs[slab]); }
  std::uint64_t bytes() const noexcept;  // of all slabs

  bool on_cuda() const noexcept { return context_ != nullptr; }
  int cuda_ordinal() const noexcept { return context_ ? context_->ordinal() : -1; }
  const cu::PrimaryContext* context() const noexcept { return context_.get(); }

 private:
  void receive(const AttachOptions& options);
  wire::Expectation settle(const AttachOptions& options);
  void take_manifest(Fd fd);
  void map_slabs(const std::vector<Fd>& fds);
  void map_cuda_slabs(const std::vector<Fd>& fds);
  void let_go(const Connection& connection, int timeout_ms);
  void release_cuda_slabs() noexcept;  // while their context is current

  Placement placement_;
  Lease lease_;
  wire::AttachReply reply_;
  Evidence evidence_ = Evidence::kNone;
  Mapping manifest_bytes_;
  std::optional<wire::ManifestView> manifest_;
  std::unique_ptr<const cu::Driver> driver_;
  std::unique_ptr<const cu::PrimaryContext> context_;
  std::unique_ptr<MappedSlabs> slabs_;
};

}  // namespace preload::client
