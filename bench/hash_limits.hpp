// SPDX-License-Identifier: Apache-2.0
#pragma once

// On a GPU, over 2 GiB, in GB/s of 10^9 bytes.
namespace preload::bench {

double device_read_gb_per_s(int device);  // a copy within the device, bytes read
double gpu_hash_gb_per_s(int device);     // the hash kernel over one run

}  // namespace preload::bench
