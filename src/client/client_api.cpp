// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "client/abi_error.hpp"
#include "client/abi_structs.hpp"
#include "client/find_daemon.hpp"
#include "client/region.hpp"
#include "preload/client.h"

using preload::Errc;
using preload::Error;
using preload::client::attach_options;
using preload::client::Attachment;
using preload::client::check_index;
using preload::client::guarded;
using preload::client::open;
using preload::client::require;
using preload::client::struct_size_of;
using preload::client::write_struct;

namespace {

void copy_dims(const preload::Dims& from, std::int64_t (&to)[PRELOAD_MAX_DIMS]) {
  static_assert(preload::Dims::kMax <= PRELOAD_MAX_DIMS);
  std::copy(from.begin(), from.end(), to);
}

preload_tensor describe_tensor(const Attachment& attachment, std::uint64_t index) {
  const preload::wire::ManifestTensor tensor = attachment.manifest()[index];
  preload_tensor out{};
  out.name = tensor.name.data();                         // followed by a NUL in the manifest
  out.dtype = preload::dtype_name(tensor.dtype).data();  // literals: NUL-terminated
  out.data = attachment.slab_data(tensor.slab) + tensor.offset;
  out.bytes = tensor.bytes;
  out.slab_offset = tensor.offset;
  out.slab = tensor.slab;
  out.ndim = static_cast<std::uint32_t>(tensor.shape.size());
  copy_dims(tensor.shape, out.shape);
  copy_dims(tensor.strides, out.strides);
  out.is_buffer = tensor.kind == preload::TensorKind::kBuffer ? 1 : 0;
  out.is_private = attachment.owns(tensor.slab) ? 1 : 0;
  out.alias_of = tensor.alias ? static_cast<std::int64_t>(*tensor.alias) : -1;
  out.row_major_bytes = preload::client::row_major_bytes(tensor);
  const std::string hash = preload::to_hex(tensor.hash);
  hash.copy(out.hash, sizeof(out.hash) - 1);
  return out;
}

}  // namespace

extern "C" {

uint32_t preload_client_abi_version(void) { return PRELOAD_CLIENT_ABI_VERSION; }
const char* preload_client_version(void) { return PRELOAD_VERSION; }
const char* preload_last_error(void) { return preload::client::last_error_text(); }
const char* preload_last_error_fields(void) { return preload::client::last_error_fields(); }

const char* preload_status_name(preload_status status) {
  switch (status) {
    case PRELOAD_OK:
      return "ok";
    case PRELOAD_E_INTERNAL:
      return "internal";
    case PRELOAD_E_USAGE:
      return "usage";
    case PRELOAD_E_DEVICE:
      return "device";
    case PRELOAD_E_UNAVAILABLE:
      return "unavailable";
    case PRELOAD_E_MISMATCH:
      return "mismatch";
    case PRELOAD_E_RELEASED:
      return "released";
    case PRELOAD_E_PROTOCOL:
      return "protocol";
    case PRELOAD_E_TIMEOUT:
      return "timeout";
    case PRELOAD_E_FAILED:
      return "failed";
    case PRELOAD_E_NOT_FOUND:
      return "not_found";
    case PRELOAD_E_MEMORY:
      return "memory";
    case PRELOAD_E_ADDRESS:
      return "address";
  }
  return "unknown";
}

preload_status preload_attach(const preload_attach_options* options, preload_attachment** out) {
  return guarded([&] {
    require(out != nullptr, "no place for the attachment was given");
    *out = std::make_unique<preload_attachment>(attach_options(options)).release();
  });
}

preload_status preload_find_daemon(const preload_attach_options* options, preload_daemon* out) {
  return guarded([&] {
    const std::size_t size = struct_size_of(out);
    thread_local preload::client::FoundDaemon found;
    found = preload::client::find_daemon(attach_options(options).connect);
    write_struct(out, size, found.describe());
  });
}

void preload_retain(preload_attachment* attachment) {
  if (attachment != nullptr) attachment->references.fetch_add(1, std::memory_order_relaxed);
}

void preload_detach(preload_attachment* attachment) {
  if (attachment == nullptr) return;
  if (attachment->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::unique_ptr<preload_attachment>(attachment).reset();
}

preload_status preload_get_info(const preload_attachment* attachment, preload_info* out) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    const std::size_t size = struct_size_of(out);
    const preload::wire::AttachReply& reply = a.reply();
    preload_info info{};
    info.device = reply.gpu_uuid.c_str();
    info.slot = reply.slot.c_str();
    info.role = reply.role.c_str();
    info.key = reply.key.c_str();
    info.metadata_json = a.manifest().metadata_json().data() /* NUL-terminated */;
    info.generation = reply.generation;
    info.bytes = a.bytes();
    info.tensor_count = a.manifest().size();
    info.slab_count = static_cast<std::uint32_t>(reply.slabs.size());
    info.memory = a.on_cuda() ? PRELOAD_MEMORY_CUDA : PRELOAD_MEMORY_HOST;
    info.cuda_device = a.cuda_ordinal();
    info.global_rank = reply.global_rank;
    info.evidence = preload::evidence_name(a.evidence()).data();  // literals: NUL-terminated
    info.range_bytes = a.range_bytes();
    if (info.range_bytes != 0) {
      info.base_address = reinterpret_cast<std::uintptr_t>(a.slab_data(0));
    }
    info.is_copy = a.is_copy() ? 1 : 0;
    write_struct(out, size, info);
  });
}

preload_status preload_get_slab(const preload_attachment* attachment, uint32_t index,
                                preload_slab* out) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    const std::size_t size = struct_size_of(out);
    check_index(index, a.manifest().slab_count(), "slab");
    preload_slab slab{};
    slab.data = a.slab_data(index);
    slab.bytes = a.reply().slabs[index].bytes;
    slab.is_private = a.owns(index) ? 1 : 0;
    write_struct(out, size, slab);
  });
}

preload_status preload_get_tensor(const preload_attachment* attachment, uint64_t index,
                                  preload_tensor* out) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    const std::size_t size = struct_size_of(out);
    check_index(index, a.manifest().size(), "tensor");
    write_struct(out, size, describe_tensor(a, index));
  });
}

preload_status preload_find_tensor(const preload_attachment* attachment, const char* name,
                                   uint64_t* index) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    require(name != nullptr && index != nullptr, "name or index is NULL");
    const std::optional<std::uint32_t> found = a.manifest().find(name);
    if (!found) {
      throw preload::client::NotFound(fmt::format("no tensor \"{}\" in {}, which has {} names",
                                                  name, a.reply().model, a.manifest().size()));
    }
    *index = *found;
  });
}

preload_status preload_get_tensors(const preload_attachment* attachment, preload_tensor* out,
                                   uint64_t count) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    if (count == 0) return;
    const std::size_t size = struct_size_of(out);
    check_index(count - 1, a.manifest().size(), "tensor");
    auto* at = reinterpret_cast<std::byte*>(out);
    for (std::uint64_t i = 0; i < count; ++i, at += size) {
      write_struct(at, size, describe_tensor(a, i));
    }
  });
}

preload_status preload_read_tensor(const preload_attachment* attachment, uint64_t index, void* out,
                                   uint64_t bytes) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    check_index(index, a.manifest().size(), "tensor");
    require(out != nullptr || bytes == 0, "no place for the tensor's bytes was given");
    preload::client::read_tensor(a, a.manifest()[index], {static_cast<std::byte*>(out), bytes});
  });
}

}  // extern "C"
