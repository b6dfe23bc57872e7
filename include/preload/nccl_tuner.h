/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PRELOAD_NCCL_TUNER_H
#define PRELOAD_NCCL_TUNER_H

/* What libnccl-tuner-preload.so exports beside NCCL's own interface: a look at what NCCL asks, and
 * a hand on what it is answered. For a process that measures: it names the library in
 * NCCL_TUNER_PLUGIN before its first communicator, opens the same file with dlopen and finds these
 * by dlsym. Every function may be called from any thread. Collectives, algorithms and protocols are
 * numbered as NCCL numbers them (ncclFuncBroadcast … ncclFuncAllReduce are 0 to 4). */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(PRELOAD_NCCL_TUNER_BUILD)
#define PRELOAD_NCCL_TUNER_API __attribute__((visibility("default")))
#else
#define PRELOAD_NCCL_TUNER_API
#endif

#define PRELOAD_NCCL_TUNER_ABI_VERSION 1
PRELOAD_NCCL_TUNER_API uint32_t preload_nccl_tuner_abi_version(void);

#define PRELOAD_NCCL_TUNER_ALGORITHMS 7 /* tree, ring, collnet_direct, collnet_chain, nvls, … */
#define PRELOAD_NCCL_TUNER_PROTOCOLS 3  /* ll, ll128, simple */

/* What became of the table that PRELOAD_TUNER_TABLE names, for one communicator. */
typedef enum preload_nccl_tuner_table {
  PRELOAD_NCCL_TUNER_TABLE_NONE = 0, /* the variable is not set, or the communicator has one rank */
  PRELOAD_NCCL_TUNER_TABLE_REFUSED = 1, /* the reason was logged as a warning */
  PRELOAD_NCCL_TUNER_TABLE_IN_USE = 2
} preload_nccl_tuner_table;

typedef struct preload_nccl_tuner_communicator {
  uint64_t id;      /* this library's number for it: grows, never used again, one up for each */
  uint64_t nccl_id; /* NCCL's own hash of it, equal on all its ranks; 0 through ABI version 4 */
  uint64_t ranks;
  uint64_t nodes;       /* as NCCL counts them */
  int32_t nccl_version; /* as ncclGetVersion gives it; 0 when the library did not tell */
  int32_t abi;          /* 4 or 5 */
  int32_t table;        /* preload_nccl_tuner_table */
  uint32_t entries;     /* of the table, that are for communicators of this shape */
} preload_nccl_tuner_communicator;

/* Writes the communicators that NCCL holds open in this process, oldest first, at most `capacity`,
 * and returns how many there are. The one that was just formed has the highest id. */
PRELOAD_NCCL_TUNER_API size_t preload_nccl_tuner_communicators(preload_nccl_tuner_communicator* out,
                                                               size_t capacity);

/* Where an answer comes from. */
typedef enum preload_nccl_tuner_source {
  PRELOAD_NCCL_TUNER_FROM_NCCL = 0,  /* costs untouched: NCCL's own choice */
  PRELOAD_NCCL_TUNER_FROM_TABLE = 1, /* the table's */
  PRELOAD_NCCL_TUNER_FROM_FORCE = 2  /* preload_nccl_tuner_force's */
} preload_nccl_tuner_source;

/* What is answered to `collective` on the communicator `id` from now on. Each returns 0, or -1 when
 * NCCL holds no such communicator or an argument is out of range. A change applies to what is
 * enqueued after it, and must be the same on all ranks of the communicator: NCCL asks each alone.
 */

/* That algorithm and protocol wherever NCCL offers them; where it does not, its costs stay
 * untouched and the call's source says so. channels 0 leaves their number to NCCL, and so do
 * candidates whose channels NCCL would not bound (collnet; nvls on several nodes). */
PRELOAD_NCCL_TUNER_API int preload_nccl_tuner_force(uint64_t id, int collective, int algorithm,
                                                    int protocol, int channels);
/* NCCL's own choice, whatever the table says. */
PRELOAD_NCCL_TUNER_API int preload_nccl_tuner_leave(uint64_t id, int collective);
/* The table's: the state in which a communicator begins. */
PRELOAD_NCCL_TUNER_API int preload_nccl_tuner_use_table(uint64_t id, int collective);

/* One question of NCCL's and its answer. NCCL asks once for each collective that is enqueued, or
 * once for those that it joins within a group; operations on symmetric memory windows are not asked
 * about. */
typedef struct preload_nccl_tuner_call {
  uint64_t number; /* counts the calls for this collective on this communicator from 1 */
  uint64_t bytes;  /* as NCCL measures them */
  int32_t collective;
  int32_t registered_buffers; /* 0 or 1 */
  int32_t pipelined_ops;
  /* Candidates that NCCL offered beyond those this library can name: it leaves such calls
   * untouched, and `own` may be one of these. */
  int32_t unknown_candidates;
  /* Microseconds by NCCL's model, as offered; negative: not offered. */
  float costs[PRELOAD_NCCL_TUNER_ALGORITHMS][PRELOAD_NCCL_TUNER_PROTOCOLS];
  int32_t own_algorithm; /* the cheapest by `costs`, which is what NCCL would take; -1: none */
  int32_t own_protocol;
  int32_t source;    /* preload_nccl_tuner_source */
  int32_t algorithm; /* answered, or NCCL's own; -1: none */
  int32_t protocol;
  int32_t channels; /* answered; 0: left to NCCL */
} preload_nccl_tuner_call;

/* The latest call for `collective` on the communicator `id`. Returns 0, or -1 when there was none.
 * Answers of communicators that are gone are gone with them. */
PRELOAD_NCCL_TUNER_API int preload_nccl_tuner_last_call(uint64_t id, int collective,
                                                        preload_nccl_tuner_call* out);

#ifdef __cplusplus
}
#endif

#endif
