// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checkpoint/checkpoint.hpp"

// What the hardware gives, measured without any of the code under test. GB/s are 10^9 bytes.
namespace preload::bench {

double median(std::vector<double> values);

// Reads the files with `threads` threads, each into one buffer of its own, 1 MiB at a time.
double plain_read_gb_per_s(const Checkpoint& checkpoint, int threads);
// The same past the page cache: O_DIRECT, 4 MiB at a time. Throws Error(kUsage) where the file
// system refuses.
double direct_read_gb_per_s(const Checkpoint& checkpoint, int threads);
// Which of a few numbers of threads, `threads` among them, reads fastest by direct_read_gb_per_s;
// reads the files once with each.
int best_direct_read_threads(const Checkpoint& checkpoint, int threads);

// With CUDA only: copies of 64 MiB from pinned host memory.
double pinned_copy_gb_per_s(int device);

}  // namespace preload::bench
