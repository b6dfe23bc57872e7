// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "client/abi_error.hpp"
#include "client/abi_structs.hpp"
#include "client/dlpack.hpp"

using preload::Errc;
using preload::Error;
using preload::client::Attachment;
using preload::client::check_index;
using preload::client::guarded;
using preload::client::open;
using preload::client::require;

namespace {

// `view` with the attachment's place, life and access.
void* hand_out(preload_attachment& owner, preload::client::DlpackView view, bool is_private,
               int versioned) {
  view.read_only = !is_private;
  if (owner.attachment.on_cuda()) view.cuda_ordinal = owner.attachment.cuda_ordinal();
  view.release = [&owner] { preload_detach(&owner); };
  void* managed = preload::client::make_dlpack(std::move(view), versioned != 0);
  preload_retain(&owner);
  return managed;
}

}  // namespace

extern "C" {

preload_status preload_dlpack_tensor(preload_attachment* attachment, uint64_t index, int versioned,
                                     void** out) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    require(out != nullptr, "no place for the view was given");
    check_index(index, a.manifest().size(), "tensor");
    const preload::wire::ManifestTensor tensor = a.manifest()[index];
    const auto dtype = preload::client::dlpack_type(tensor.dtype);
    if (!dtype) {
      throw Error(Errc::kUsage, fmt::format("{} is {}, which DLPack has no unpacked type for: take "
                                            "its bytes",
                                            tensor.name, preload::dtype_name(tensor.dtype)));
    }
    preload::client::DlpackView view;
    view.data = a.slab_data(tensor.slab) + tensor.offset;
    view.dtype = *dtype;
    view.shape.assign(tensor.shape.begin(), tensor.shape.end());
    view.strides.assign(tensor.strides.begin(), tensor.strides.end());
    *out = hand_out(*attachment, std::move(view), a.owns(tensor.slab), versioned);
  });
}

preload_status preload_dlpack_slab(preload_attachment* attachment, uint32_t slab, int versioned,
                                   void** out) {
  return guarded([&] {
    const Attachment& a = open(attachment);
    require(out != nullptr, "no place for the view was given");
    check_index(slab, a.manifest().slab_count(), "slab");
    const preload::wire::SlabInfo& info = a.reply().slabs[slab];
    preload::client::DlpackView view;
    view.data = a.slab_data(slab);
    view.dtype = *preload::client::dlpack_type(preload::DType::kU8);
    view.shape = {static_cast<std::int64_t>(info.bytes)};
    view.strides = {1};
    *out = hand_out(*attachment, std::move(view), a.owns(slab), versioned);
  });
}

void preload_dlpack_free(void* managed, int versioned) {
  preload::client::free_dlpack(managed, versioned != 0);
}

}  // extern "C"
