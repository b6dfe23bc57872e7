// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

// What the hardware gives, measured without any of the code under test. GB/s are 10^9 bytes.
namespace preload::bench {

double median(std::vector<double> values);

// Reads the files with `threads` threads, each into one buffer of its own, 1 MiB at a time.
double plain_read_gb_per_s(const Checkpoint& checkpoint, int threads);
// The same past the page cache: O_DIRECT, 4 MiB at a time. Throws where the file system refuses.
double direct_read_gb_per_s(const Checkpoint& checkpoint, int threads);
// Writes 1 to /proc/sys/vm/drop_caches after a sync; needs root.
void drop_page_cache();
// One core: memcpy of a buffer far larger than the caches.
double memcpy_gb_per_s();

// With CUDA only. Copies of 64 MiB from pinned host memory, and within the device (bytes read).
double pinned_copy_gb_per_s(int device);
double device_read_gb_per_s(int device);
// The hash kernel over one run of 2 GiB.
double gpu_hash_gb_per_s(int device);

}  // namespace preload::bench
