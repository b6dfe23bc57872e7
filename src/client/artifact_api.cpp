// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "client/abi_error.hpp"
#include "client/abi_structs.hpp"
#include "client/artifact.hpp"
#include "preload/client.h"

using preload::client::Artifact;
using preload::client::attach_options;
using preload::client::guarded;
using preload::client::require;
using preload::client::struct_size_of;
using preload::client::write_struct;

extern "C" {

preload_status preload_put_artifact(const preload_attach_options* options, const char* key,
                                    const char* metadata, const void* data, uint64_t bytes) {
  return guarded([&] {
    require(key != nullptr && (data != nullptr || bytes == 0), "the key or the data is NULL");
    preload::client::put_artifact(attach_options(options).connect, key,
                                  metadata != nullptr ? metadata : "",
                                  {static_cast<const std::byte*>(data), bytes});
  });
}

preload_status preload_get_artifact(const preload_attach_options* options, const char* key,
                                    preload_artifact* out) {
  return guarded([&] {
    require(key != nullptr, "the key is NULL");
    const std::size_t size = struct_size_of(out);
    require(size >= sizeof(preload_artifact), "preload_artifact is shorter than it ever was");
    auto found = preload::client::get_artifact(attach_options(options).connect, key);
    if (!found) {
      throw preload::client::NotFound(fmt::format("the daemon has no artifact \"{}\"", key));
    }
    auto artifact = std::make_unique<Artifact>(std::move(*found));
    preload_artifact value{};
    value.data = artifact->content.data();
    value.bytes = artifact->content.size();
    value.metadata = artifact->metadata.c_str();
    value.handle = artifact.release();
    write_struct(out, size, value);
  });
}

void preload_free_artifact(preload_artifact* artifact) {
  if (artifact == nullptr) return;
  std::unique_ptr<Artifact>(static_cast<Artifact*>(artifact->handle)).reset();
  artifact->handle = nullptr;
  artifact->data = nullptr;
  artifact->bytes = 0;
  artifact->metadata = nullptr;
}

}  // extern "C"
