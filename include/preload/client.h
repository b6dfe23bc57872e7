/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRELOAD_CLIENT_H
#define PRELOAD_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(PRELOAD_CLIENT_BUILD)
#define PRELOAD_API __attribute__((visibility("default")))
#else
#define PRELOAD_API
#endif

/* The ABI's version. Structs begin with their size in bytes, set by the caller: fields are only
 * ever appended, and a library reads no more than the caller has. */
#define PRELOAD_CLIENT_ABI_VERSION 1
PRELOAD_API uint32_t preload_client_abi_version(void);
PRELOAD_API const char* preload_client_version(void); /* "0.1.0" */

typedef enum preload_status {
  PRELOAD_OK = 0,
  PRELOAD_E_INTERNAL = 1,
  PRELOAD_E_USAGE =
      2, /* a bad option, an unsafe socket directory, an expected model that cannot be read */
  PRELOAD_E_DEVICE = 3,      /* the CUDA driver refused */
  PRELOAD_E_UNAVAILABLE = 4, /* no daemon there, or it is not serving (yet) */
  PRELOAD_E_MISMATCH = 5,    /* it holds something else than expected */
  PRELOAD_E_RELEASED = 6,    /* its weights were released */
  PRELOAD_E_PROTOCOL = 7,    /* the peer broke the protocol or is not to be trusted */
  PRELOAD_E_TIMEOUT = 8,
  PRELOAD_E_FAILED = 9,     /* the daemon failed while loading; the text is its own */
  PRELOAD_E_NOT_FOUND = 10, /* no tensor of that name */
  PRELOAD_E_MEMORY = 11,    /* a copy, or the private tensors, do not fit */
  PRELOAD_E_ADDRESS = 12    /* the base address that was asked for is not to be had */
} preload_status;

/* Text of the last error on this thread; never NULL; valid until the next call on this thread. */
PRELOAD_API const char* preload_last_error(void);
/* After PRELOAD_E_MISMATCH: {"field": {"expected": text, "served": text or null}, …}; else "{}". */
PRELOAD_API const char* preload_last_error_fields(void);
PRELOAD_API const char* preload_status_name(preload_status status); /* "mismatch" */

typedef enum preload_mode {
  PRELOAD_MODE_MAP = 0,
  /* The attachment owns writable copies of all slabs, holds no lease, and the daemon is asked to
   * free the weights with its last lease: later attaches are refused as released. */
  PRELOAD_MODE_COPY = 1
} preload_mode;

typedef struct preload_attach_options {
  size_t struct_size;     /* sizeof(preload_attach_options) */
  const char* socket_dir; /* NULL: $PRELOAD_SOCKET_DIR, else /tmp/preload-<uid> */
  const char* device; /* GPU UUID ("GPU-…"), CUDA index ("0"), or "host:N"; NULL: the only daemon */
  const char* slot;   /* NULL: none */
  const char* role;   /* NULL: "target"; or "draft" */
  /* NULL, or a JSON object of what must be served: "key", "checkpoint" (64 hex digits), "fields" of
   * the key by name; or "model", a checkpoint's directory or hub id (with "revision"), whose files
   * are compared with what was loaded, hashed where nothing cheaper shows that they are the same
   * ("trust_sample": true: a few KiB of each are enough). */
  const char* expect_json;
  const char* client_name;    /* shown in `preload status`; NULL: the program's name */
  int32_t connect_timeout_ms; /* one connect and hello; 0: 5000 */
  int32_t wait_timeout_ms; /* how long to wait for a daemon that is loading or not there yet; 0: do
                              not wait. One that failed is reported at once, or when no other has
                              taken its place within 3 s of the wait. */
  int32_t mode;            /* preload_mode */
  /* All slabs as one range of addresses that begins here, in order and as preload_info.base_address
   * told of an earlier attachment of the same weights: for pointers that were baked into CUDA
   * graphs or snapshots. 0: anywhere. PRELOAD_E_ADDRESS when that range is not free. */
  uint64_t base_address;
  /* NULL, or the absolute path of the daemon's socket, instead of socket_dir: device, slot and role
   * need not be given then, and are checked where they are. */
  const char* socket_path;
  /* How long to wait for a daemon of which there is no sign, neither a socket nor a held lock,
   * while wait_timeout_ms is for one that loads, from its first sign on. 0: wait_timeout_ms is for
   * both, from the call on; negative: not at all. */
  int32_t absent_timeout_ms;
  /* NULL, or the user ids whose daemons are trusted besides our own and root's, "990" or
   * "990,1000"; $PRELOAD_ALLOW_UIDS adds to them. Such a daemon has to name ours with --allow-uid.
   */
  const char* allow_uids;
} preload_attach_options;

typedef enum preload_daemon_state {
  PRELOAD_DAEMON_ABSENT = 0,  /* nothing holds the lock and nobody answers */
  PRELOAD_DAEMON_LOADING = 1, /* or it holds its lock and does not answer */
  PRELOAD_DAEMON_READY = 2,
  PRELOAD_DAEMON_DRAINING = 3, /* its weights go with the last lease */
  PRELOAD_DAEMON_RELEASED = 4,
  PRELOAD_DAEMON_FAILED = 5,  /* while loading; the text says why */
  PRELOAD_DAEMON_ORPHANED = 6 /* a keeper serves what a daemon left */
} preload_daemon_state;

typedef struct preload_daemon {
  size_t struct_size;
  int32_t state;       /* preload_daemon_state */
  int32_t memory;      /* preload_memory; of no meaning while absent */
  int32_t cuda_device; /* ordinal in this process; -1 on host memory or where it is not visible */
  int32_t pid;         /* in the daemon's PID namespace; 0: not known */
  uint64_t bytes;      /* of its slabs; while loading, what is to be read */
  uint64_t generation;
  /* Strings are "" where they are not known, and valid until this thread's next call. */
  const char* device;
  const char* slot;
  const char* role;
  const char* job;
  const char* model;
  const char* key;
  const char* text; /* how far it is, why it failed, or what was looked for */
} preload_daemon;
/* One look, without waiting or taking a lease: an absent or failed daemon is no error. */
PRELOAD_API preload_status preload_find_daemon(const preload_attach_options* options,
                                               preload_daemon* out);

/* One attached shard, counted by references. Holds the lease; thread-safe for reading. In a forked
 * child the lease is not held: attach again there. */
typedef struct preload_attachment preload_attachment;

PRELOAD_API preload_status preload_attach(const preload_attach_options* options,
                                          preload_attachment** out);
/* Gives one reference up. The last one waits for the device's queued work, unmaps and ends the
 * lease: pointers into the slabs are invalid afterwards. NULL is allowed. */
PRELOAD_API void preload_detach(preload_attachment* attachment);
/* One more reference, for views that outlive their attachment's first owner. */
PRELOAD_API void preload_retain(preload_attachment* attachment);

typedef enum preload_memory { PRELOAD_MEMORY_HOST = 0, PRELOAD_MEMORY_CUDA = 1 } preload_memory;

typedef struct preload_info {
  size_t struct_size;
  const char* device; /* "gpu-…" or "host:N" */
  const char* slot;
  const char* role;
  const char* key;           /* 64 hex digits */
  const char* metadata_json; /* model attributes, key fields, rank, sizes; NUL-terminated */
  uint64_t generation;
  uint64_t bytes; /* of all slabs */
  uint64_t tensor_count;
  uint32_t slab_count;
  int32_t memory;      /* preload_memory */
  int32_t cuda_device; /* ordinal in this process; -1 on host memory */
  int32_t global_rank;
  /* What the claim rests on that the expected is attached: "receipt" (the very same files), "hash"
   * (every byte), "sample" (trusted as asked), "key" (the client's own word); "none" where nothing
   * was expected. */
  const char* evidence;
  uint64_t base_address; /* of the range that all slabs lie in; 0: they lie apart (cuda-ipc) */
  uint64_t range_bytes;
  int32_t is_copy; /* attached with PRELOAD_MODE_COPY */
} preload_info;
PRELOAD_API preload_status preload_get_info(const preload_attachment* attachment,
                                            preload_info* out);

typedef struct preload_slab {
  size_t struct_size;
  void* data; /* host or device address in this process; read-only unless private */
  uint64_t bytes;
  int32_t is_private; /* a writable copy of this client's own, in PRELOAD_MODE_COPY too */
} preload_slab;
PRELOAD_API preload_status preload_get_slab(const preload_attachment* attachment, uint32_t index,
                                            preload_slab* out);

#define PRELOAD_MAX_DIMS 8
typedef struct preload_tensor {
  size_t struct_size;
  const char* name;     /* NUL-terminated, lives as long as the attachment */
  const char* dtype;    /* safetensors' name: "BF16", "F8_E4M3", … */
  void* data;           /* first element */
  uint64_t bytes;       /* of the extent; 0 for a tensor without elements */
  uint64_t slab_offset; /* bytes from its slab's first byte */
  uint32_t slab;
  uint32_t ndim;
  int64_t shape[PRELOAD_MAX_DIMS];
  int64_t strides[PRELOAD_MAX_DIMS]; /* elements */
  int32_t is_buffer;                 /* parameter otherwise */
  int32_t is_private;
  int64_t alias_of;         /* index of the tensor it is another name of, or -1 */
  char hash[33];            /* 32 hex digits over the row-major bytes */
  uint64_t row_major_bytes; /* of all elements without gaps: what preload_read_tensor gives */
} preload_tensor;
/* Tensors 0 … tensor_count-1 in the layout's order. */
PRELOAD_API preload_status preload_get_tensor(const preload_attachment* attachment, uint64_t index,
                                              preload_tensor* out);
PRELOAD_API preload_status preload_find_tensor(const preload_attachment* attachment,
                                               const char* name, uint64_t* index);
/* All tensors in one call: fills out[0 … count-1], count as in preload_info. out[0].struct_size,
 * set by the caller, is the size of each. */
PRELOAD_API preload_status preload_get_tensors(const preload_attachment* attachment,
                                               preload_tensor* out, uint64_t count);

/* A tensor's elements in row-major order, brought to host memory whatever they lie in and however
 * they are strided: `bytes` is row_major_bytes. For looking at weights and for engines without
 * DLPack; may be called on any thread. */
PRELOAD_API preload_status preload_read_tensor(const preload_attachment* attachment, uint64_t index,
                                               void* out, uint64_t bytes);

/* DLPack views: *out is a DLManagedTensor*, or a DLManagedTensorVersioned* (1.0, with its read-only
 * flag set unless private) when `versioned`. Each holds a reference until its deleter is called, on
 * any thread. A slab is seen as bytes (U8). PRELOAD_E_USAGE for a dtype that DLPack cannot express
 * (packed FP4 and FP6). */
PRELOAD_API preload_status preload_dlpack_tensor(preload_attachment* attachment, uint64_t index,
                                                 int versioned, void** out);
PRELOAD_API preload_status preload_dlpack_slab(preload_attachment* attachment, uint32_t slab,
                                               int versioned, void** out);
/* Calls the view's own deleter: for a view that nobody took. */
PRELOAD_API void preload_dlpack_free(void* managed, int versioned);

/* What an engine leaves with a daemon for its successor: tuning tables, caches of compiled code.
 * `key` is "<kind>/<configuration>/<file>" or another path of names of letters, digits, '.', '_'
 * and
 * '-'; the same key replaces. At most 64 MiB each; past 256 MiB in all, what was not used for
 * longest goes. A keeper and a successor of the daemon get all of them. `options` say which daemon,
 * as for preload_attach. */
PRELOAD_API preload_status preload_put_artifact(const preload_attach_options* options,
                                                const char* key,
                                                const char* metadata, /* handed back; may be NULL */
                                                const void* data, uint64_t bytes);
typedef struct preload_artifact {
  size_t struct_size;
  const void* data; /* read-only */
  uint64_t bytes;
  const char* metadata; /* "" where none was given */
  void* handle;         /* the library's own */
} preload_artifact;
/* PRELOAD_E_NOT_FOUND where the daemon has none of that key. */
PRELOAD_API preload_status preload_get_artifact(const preload_attach_options* options,
                                                const char* key, preload_artifact* out);
PRELOAD_API void preload_free_artifact(preload_artifact* artifact);

#ifdef __cplusplus
}
#endif
#endif
