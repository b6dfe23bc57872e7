/* SPDX-License-Identifier: Apache-2.0
 *
 * The C ABI's structs as they were released, for x86-64 and AArch64. A line may be added for a
 * field that was appended; a line that must change breaks programs that were built before. */
#include <assert.h>
#include <preload/client.h>
#include <stddef.h>

#define AT(type, field, offset) \
  static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define SIZE(type, size) static_assert(sizeof(type) == (size), #type " has another size")

static_assert(PRELOAD_CLIENT_ABI_VERSION == 1, "the ABI's version has changed");
static_assert(PRELOAD_MAX_DIMS == 8, "PRELOAD_MAX_DIMS has changed");

AT(preload_attach_options, struct_size, 0);
AT(preload_attach_options, socket_dir, 8);
AT(preload_attach_options, device, 16);
AT(preload_attach_options, slot, 24);
AT(preload_attach_options, role, 32);
AT(preload_attach_options, expect_json, 40);
AT(preload_attach_options, client_name, 48);
AT(preload_attach_options, connect_timeout_ms, 56);
AT(preload_attach_options, wait_timeout_ms, 60);
AT(preload_attach_options, mode, 64);
AT(preload_attach_options, base_address, 72);
AT(preload_attach_options, socket_path, 80);
AT(preload_attach_options, absent_timeout_ms, 88);
AT(preload_attach_options, allow_uids, 96);
SIZE(preload_attach_options, 104);

AT(preload_daemon, struct_size, 0);
AT(preload_daemon, state, 8);
AT(preload_daemon, memory, 12);
AT(preload_daemon, cuda_device, 16);
AT(preload_daemon, pid, 20);
AT(preload_daemon, bytes, 24);
AT(preload_daemon, generation, 32);
AT(preload_daemon, device, 40);
AT(preload_daemon, slot, 48);
AT(preload_daemon, role, 56);
AT(preload_daemon, job, 64);
AT(preload_daemon, model, 72);
AT(preload_daemon, key, 80);
AT(preload_daemon, text, 88);
SIZE(preload_daemon, 96);

AT(preload_info, struct_size, 0);
AT(preload_info, device, 8);
AT(preload_info, slot, 16);
AT(preload_info, role, 24);
AT(preload_info, key, 32);
AT(preload_info, metadata_json, 40);
AT(preload_info, generation, 48);
AT(preload_info, bytes, 56);
AT(preload_info, tensor_count, 64);
AT(preload_info, slab_count, 72);
AT(preload_info, memory, 76);
AT(preload_info, cuda_device, 80);
AT(preload_info, global_rank, 84);
AT(preload_info, evidence, 88);
AT(preload_info, base_address, 96);
AT(preload_info, range_bytes, 104);
AT(preload_info, is_copy, 112);
SIZE(preload_info, 120);

AT(preload_slab, struct_size, 0);
AT(preload_slab, data, 8);
AT(preload_slab, bytes, 16);
AT(preload_slab, is_private, 24);
SIZE(preload_slab, 32);

AT(preload_tensor, struct_size, 0);
AT(preload_tensor, name, 8);
AT(preload_tensor, dtype, 16);
AT(preload_tensor, data, 24);
AT(preload_tensor, bytes, 32);
AT(preload_tensor, slab_offset, 40);
AT(preload_tensor, slab, 48);
AT(preload_tensor, ndim, 52);
AT(preload_tensor, shape, 56);
AT(preload_tensor, strides, 120);
AT(preload_tensor, is_buffer, 184);
AT(preload_tensor, is_private, 188);
AT(preload_tensor, alias_of, 192);
AT(preload_tensor, hash, 200);
AT(preload_tensor, row_major_bytes, 240);
SIZE(preload_tensor, 248);

AT(preload_artifact, struct_size, 0);
AT(preload_artifact, data, 8);
AT(preload_artifact, bytes, 16);
AT(preload_artifact, metadata, 24);
AT(preload_artifact, handle, 32);
SIZE(preload_artifact, 40);
